"""How a worker calls the rollups that it leaves; the daemon reads these names, and nothing that is in the files."""

from __future__ import annotations

from profd.limits import ROLLUP_BYTES_MAX, TILES_BYTES_MAX

_PLACE_DIGITS_MAX = 7
_HEADER_BYTES_MAX = 4096
_LARGE = "tiles-"  # files that are read in parts


def file_name(place: int, name: str) -> str:
    """The rollup `name` of the trace that has this place among those that were asked about."""
    return f"{place}.{name}"


def parsed(file: str) -> tuple[int, str] | None:
    """(place, name) of such a file; None for a stranger."""
    place, dot, name = file.partition(".")
    known = dot and place.isascii() and place.isdecimal() and len(place) <= _PLACE_DIGITS_MAX
    return (int(place), name) if known else None


def bytes_max(name: str) -> int:
    """Of the rollup of this name, with its header."""
    return TILES_BYTES_MAX if name.startswith(_LARGE) else ROLLUP_BYTES_MAX + _HEADER_BYTES_MAX
