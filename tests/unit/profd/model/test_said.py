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
    assert few(["x" * (SAID_CHARACTERS_MAX + 9), "y"]) == [
        "x" * SAID_CHARACTERS_MAX + "… (9 characters more)",
        "and 1 sentences more",
    ]
