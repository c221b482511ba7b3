"""What is said of a recording, within bounds: programs say some of it, and records are kept by the thousand."""

from __future__ import annotations

from collections.abc import Iterable

from profd.limits import SAID_CHARACTERS_MAX, SAID_SENTENCES_MAX


def brief(text: str) -> str:
    """A sentence, cut where it is longer than any of ours; it says so."""
    left_out = len(text) - SAID_CHARACTERS_MAX
    return text if left_out <= 0 else f"{text[:SAID_CHARACTERS_MAX]}… ({left_out} characters more)"


def few(sentences: Iterable[str]) -> list[str]:
    """Sentences, each of them once: as many as anybody reads, together as long as one may be, and how many more."""
    distinct = list(dict.fromkeys(map(brief, sentences)))
    kept: list[str] = []
    for sentence in distinct[:SAID_SENTENCES_MAX]:
        if kept and sum(map(len, kept)) + len(sentence) > SAID_CHARACTERS_MAX:
            break
        kept.append(sentence)
    left_out = len(distinct) - len(kept)
    return [*kept, f"and {left_out} sentences more"] if left_out else kept
