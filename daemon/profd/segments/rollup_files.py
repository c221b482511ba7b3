"""How a worker calls the rollups that it leaves; the daemon reads these names, and nothing that is in the files."""

from __future__ import annotations

_PLACE_DIGITS_MAX = 7


def file_name(place: int, name: str) -> str:
    """The rollup `name` of the trace that has this place among those that were asked about."""
    return f"{place}.{name}"


def parsed(file: str) -> tuple[int, str] | None:
    """(place, name) of such a file; None for a stranger."""
    place, dot, name = file.partition(".")
    known = dot and place.isascii() and place.isdecimal() and len(place) <= _PLACE_DIGITS_MAX
    return (int(place), name) if known else None
