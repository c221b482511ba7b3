"""What is said of a recording, within bounds: programs say some of it, and records are kept by the thousand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from profd.limits import SAID_CHARACTERS_MAX, SAID_SENTENCES_MAX

_MARK_CHARACTERS: Final = 40  # of what is told of the rest
_MORE: Final = re.compile(r"and ([0-9]{1,9}) sentences more")


def brief(text: str) -> str:
    """A sentence, cut where it is longer than any of ours; it says so. The same again of what was cut before."""
    if len(text) <= SAID_CHARACTERS_MAX:
        return text
    kept = text[: SAID_CHARACTERS_MAX - _MARK_CHARACTERS]
    return f"{kept}… ({len(text) - len(kept)} characters more)"


def few(sentences: Iterable[str]) -> list[str]:
    """Sentences, each of them once: as many as anybody reads, together as long as one may be, and how many more.

    What was left out before, of some of them, counts among these.
    """
    distinct, left_out = [], 0
    for sentence in dict.fromkeys(map(brief, sentences)):
        if more := _MORE.fullmatch(sentence):
            left_out += int(more[1])
        else:
            distinct.append(sentence)
    kept: list[str] = []
    for sentence in distinct[:SAID_SENTENCES_MAX]:
        if kept and sum(map(len, kept)) + len(sentence) > SAID_CHARACTERS_MAX:
            break
        kept.append(sentence)
    left_out += len(distinct) - len(kept)
    return [*kept, f"and {left_out} sentences more"] if left_out else kept
