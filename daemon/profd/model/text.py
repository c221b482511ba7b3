"""Text that UTF-8 and terminals can take, whatever strings targets and foreign traces bring."""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text with `?` for each lone surrogate, which JSON, Arrow and protobuf refuse."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def printable_text(text: str, characters: int) -> str:
    """That many characters of the text. Characters that could play with a terminal become U+FFFD."""
    clean = encodable(text[:characters])
    if clean.isprintable():
        return clean
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in clean)
