"""The text of a box: as much of a name as fits, the distinctive part first."""

from __future__ import annotations

import re

from profclient.cli.output import printable, without_folder

_FILE = re.compile(r"^[^/]*\.py\(\d+\): ")
_LEAST = 3  # columns: a shorter name tells nothing


def shortened(name: str, columns: int) -> str:
    """A name in at most so many columns: without its folder, then without its file, then cut; empty where none fits."""
    text = without_folder(printable(name))
    if len(text) > columns:
        text = _FILE.sub("", text)
    if len(text) <= columns:
        return text
    return text[: columns - 1] + "…" if columns >= _LEAST else ""
