"""What is said of a recording is bounded, and says what was left out."""

from __future__ import annotations

from profd.limits import SAID_CHARACTERS_MAX, SAID_SENTENCES_MAX
from profd.model.said import brief, few


def test_sentences_of_ours_are_as_they_are_and_each_once() -> None:
    assert few(["memory: no", "shapes: no", "memory: no"]) == ["memory: no", "shapes: no"]
    assert few([]) == []
    assert brief("x" * SAID_CHARACTERS_MAX) == "x" * SAID_CHARACTERS_MAX


def test_what_is_left_out_is_counted() -> None:
    assert few(map(str, range(SAID_SENTENCES_MAX + 7)))[-2:] == [str(SAID_SENTENCES_MAX - 1), "and 7 sentences more"]
    assert few(letter * 1000 for letter in "abc") == ["a" * 1000, "b" * 1000, "and 1 sentences more"]
    cut = brief("x" * 5000)
    assert len(cut) <= SAID_CHARACTERS_MAX
    kept, _, rest = cut.partition("… ")
    assert rest == f"({5000 - len(kept)} characters more)"
    assert few(["x" * 5000, "y" * 100]) == [cut, "and 1 sentences more"]


def test_what_was_cut_before_is_not_cut_again_and_still_counted() -> None:
    once = few(map(str, range(500)))
    assert few(once) == once
    assert few([*once, "another"])[-1] == f"and {500 - SAID_SENTENCES_MAX + 1} sentences more"
    assert brief(brief("x" * 5000)) == brief("x" * 5000)
