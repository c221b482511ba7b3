"""Uids that are nobody's, for what works on the processes of others.

A user traces, signals and limits what has their uid. And uid 0 without capabilities still owns /etc/shadow, and
connects to the daemon as an admin. So they come from the range that systemd's table of uids leaves unused (1879048192
to 2147483647); where this user namespace has none of those, from below 65534, where distroless images have a user
(65532), whose processes can signal ours if they share the namespace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

COUNT: Final = 14
UNUSED: Final = 2_147_483_200
_OTHERWISE: Final = 65_520


def first(proc: Path = Path("/proc")) -> int:
    """The first of COUNT uids (and gids) in a row that are nobody's here."""
    return UNUSED if all(_is_mapped(proc / "self" / name) for name in ("uid_map", "gid_map")) else _OTHERWISE


def _is_mapped(map_of_ids: Path) -> bool:
    """Whether one line, (first here, first there, how many), has all of them. A kernel without namespaces has none."""
    try:
        lines = [[int(word) for word in line.split()] for line in map_of_ids.read_text().splitlines()]
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return any(here <= UNUSED and here + count >= UNUSED + COUNT for here, _, count in lines)


FIRST: Final = first()
SAMPLERS: Final = range(FIRST, FIRST + 12)  # of root's targets; in turn, so that no sampler is another one's user
PORTERS: Final = FIRST + 12  # of everybody's
STREAMER: Final = FIRST + 13  # of everybody's
