"""Text from targets, files and other hosts, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text from targets and files without control characters: terminals obey those."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which may be indented."""
    return "".join(char if char in "\n\t" else printable(char) for char in text)
