"""Ids of captures: short enough to type, long enough not to be guessed or met twice."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from profd.errors import BadInput, NotFound
from profd.limits import CAPTURES_KEPT_PER_UID_MAX


def new_id(taken: Collection[str]) -> str:
    """`c` and twelve hex digits."""
    while (candidate := "c" + secrets.token_hex(6)) in taken:
        pass
    return candidate


def resolve(prefix: str, known: Collection[str], what: str) -> str:
    """The id a prefix means. NotFound if none of the known, BadInput if several."""
    found = [candidate for candidate in known if candidate.startswith(prefix)]
    if prefix in found:
        return prefix
    if not found:
        raise NotFound(
            f"you have no {what} {prefix!r}; `profctl captures` lists them. Of a user's {what}s the newest "
            f"{CAPTURES_KEPT_PER_UID_MAX} are kept at most; traces of earlier ones are in `profctl list`"
        )
    if len(found) > 1:
        some = ", ".join(sorted(found)[:4])
        raise BadInput(f"{prefix!r} is the beginning of {len(found)} {what}s ({some}); give more of it")
    return found[0]
