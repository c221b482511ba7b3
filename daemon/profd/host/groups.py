"""Groups that settings name."""

from __future__ import annotations

import grp

from profd.errors import BadInput


def gid_of(setting: str, group: str) -> int | None:
    """The group's gid; None where the setting is empty. Raises BadInput where there is no such group."""
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        raise BadInput(
            f"{setting}: there is no group {group!r} on this host. "
            f"Create it (groupadd {group}), or correct the setting."
        ) from error
