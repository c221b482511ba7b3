"""Where an exported trace lies says whose it is: `capture=<id>/host=<h>/rank=<r>/trace=<t>` (docs/store.md).

As engines read it. In a capture of many hosts a trace itself knows its host's capture and its host's own name only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # how engines write that there is no value
_NAMES: Final = ("capture=", "host=", "rank=", "trace=")


@dataclass(frozen=True, slots=True)
class Absent:
    """What is known to be missing of an exported capture."""

    ranks: int = 0  # the capture was to have at least so many, from 0 on
    hosts: tuple[str, ...] = ()  # that it has no trace of
    unread: Sequence[Mapping[str, Any]] = ()  # traces that are not what they are listed as: rank, host, trace, why


def place_of(directory: Path) -> tuple[str, str | None] | None:
    """(capture, host or None) of a trace in such a directory; None for any other."""
    parts = directory.parts[-len(_NAMES) :]
    if len(parts) < len(_NAMES) or not all(map(str.startswith, parts, _NAMES)):
        return None
    capture, host = (unquote(part.partition("=")[2]) for part in parts[:2])
    return capture, None if host == NULL else host
