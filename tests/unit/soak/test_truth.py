"""What counts as lost and as doubled."""

from __future__ import annotations

import struct
import zlib

import pytest

from soak.truth import Found, Promise, Verdict, acknowledged, judged


def found(values: list[int], promise: Promise) -> Found:
    first, upto = promise.window
    distinct = set(values)
    promised = sum(first <= value < upto for value in distinct)
    return Found(len(values), len(distinct), promised, min(values, default=0), max(values, default=-1))


@pytest.mark.parametrize(
    ("values", "counted", "verdict"),
    [
        (range(5, 30), 0, Verdict()),
        (range(10, 20), 0, Verdict()),
        (range(11, 20), 0, Verdict(lost=1)),
        (range(10, 19), 0, Verdict(lost=1)),
        (range(10, 19), 1, Verdict()),
        ([*range(5, 12), *range(14, 30)], 0, Verdict(lost=2)),
        ([*range(5, 12), *range(14, 30)], 2, Verdict()),
        ([*range(5, 30), 7, 8], 0, Verdict(doubled=2)),
        ([], 0, Verdict(lost=10)),
        ([], 10, Verdict()),
        ([*range(5, 8), *range(9, 30)], 0, Verdict(lost=1)),  # before what is promised, and yet within
    ],
)
def test_what_was_promised_is_there_once_or_counted(values: list[int], counted: int, verdict: Verdict) -> None:
    promise = Promise(10, 20)
    assert judged(promise, found(list(values), promise), counted) == verdict


def test_what_a_daemon_had_acknowledged_is_there_whatever_died_with_it() -> None:
    promise = Promise(acked=30)
    assert judged(promise, found(list(range(30)), promise), 0) == Verdict()
    assert judged(promise, found(list(range(29)), promise), 0) == Verdict(lost=1)


def test_without_a_begin_or_an_end_nothing_is_promised() -> None:
    for promise in (Promise(), Promise(first=5), Promise(upto=9), Promise(9, 5)):
        assert judged(promise, found([], promise), 0) == Verdict()


def test_the_first_end_holds() -> None:
    promise = Promise(first=1)
    promise.ends(9)
    promise.ends(7)
    promise.ends(12)
    assert promise.window == (1, 7)


def chunk(events: int, body: bytes = b"body") -> bytes:
    rest = bytes(72 - 16) + struct.pack("<I", events) + bytes(96 - 76) + body
    return b"PFC1" + struct.pack("<HBBII", 1, 0, 0, 16 + len(rest), zlib.crc32(rest)) + rest


def test_whole_chunks_of_a_journal_are_acknowledged() -> None:
    journal = chunk(3) + chunk(5)
    assert acknowledged(journal) == 8
    assert acknowledged(journal[:-1]) == 3
    assert acknowledged(journal + bytes(50)) == 8
    assert acknowledged(chunk(3) + chunk(5)[:-1] + b"x") == 3
    assert acknowledged(b"") == 0
