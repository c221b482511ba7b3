"""Rows of gloo and what a flight recorder remembers, played by groups with two threads each."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from profd.answers.ranks.numbered import NOT_ASKED, NOT_FITTING, Numbered, Rows, numbered, when_called
from profd.model.remembered import RememberedCall

from tests.corpus.answers import seeds

MS = 1_000_000
THREADS = 2  # of a group
SIZES = {"0 default_pg": (16,), "1": (50, 60, 70)}  # by group, of each call in turn
FIRST = 40  # the number of the first call in the window


@dataclass(frozen=True)
class Played:
    """Rows of a window and the truth of each; calls from before the window to after it."""

    rows: Rows
    truth: list[tuple[str, int]]
    calls: list[RememberedCall]


def played(seed: int, *, steps: int = 60, burst: int = 3, waits: bool = True) -> Played:
    """Each step calls the first group once, waits for it or not, then the second `burst` times without waiting."""
    random = np.random.default_rng(seed)
    free: dict[str, list[tuple[int, int]]] = {
        group: [(0, THREADS * at + n) for n in range(THREADS)] for at, group in enumerate(SIZES)
    }
    numbers = dict.fromkeys(SIZES, FIRST)
    calls, rows, now = list[RememberedCall](), list[tuple[int, int, int, str, int]](), 10 * MS
    for step in range(steps + 4):
        now += int(random.exponential(3 * MS))
        for group in ("0 default_pg", *["1"] * burst):
            now += int(random.integers(20_000, 60_000))
            number = numbers[group]
            numbers[group] += 1
            size = SIZES[group][number % len(SIZES[group])]
            calls.append(RememberedCall(group, number, "all_reduce", size, now))
            begun, thread = heapq.heappop(free[group])
            begun = max(begun, now + int(random.integers(10_000, 200_000)))
            heapq.heappush(free[group], (begun + int(random.integers(200_000, 2 * MS)), thread))
            if waits and group == "0 default_pg":
                now = begun + 2 * MS
            if step < steps:  # the recording ends, the job goes on
                rows.append((begun, thread, number, group, size))
        now = max(end for each in free.values() for end, _ in each)  # it waits for all of them
    rows.sort()
    start, on = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    kinds = [("all_reduce", size) for *_, size in rows]
    made = [("all_reduce", call.elements or 0) for call in calls]
    called = when_called(start, kinds, np.array([call.created_ns for call in calls]), made)
    table = Rows(start, called, on, [op for op, _ in kinds], [size for _, size in kinds])
    return Played(table, [(group, number) for _, _, number, group, _ in rows], calls)


def told(found: Numbered) -> list[tuple[str, int]]:
    return list(zip(found.group, found.sequence.tolist(), strict=True))


def wrong(found: Numbered, one: Played) -> int:
    """Rows with another group or number than theirs, beside two that began so close that no one can tell."""
    return sum(
        said[0] not in ("", true[0]) or (said[0] != "" and abs(said[1] - true[1]) >= THREADS)
        for said, true in zip(told(found), one.truth, strict=True)
    )


@pytest.mark.parametrize("burst", [1, 3, 5])
@pytest.mark.parametrize("sized", [True, False], ids=["sizes", "no sizes"])
def test_a_small_recorder_numbers_the_whole_window(sized: bool, burst: int) -> None:
    """GIVEN the last 40 calls of two groups WHEN no row was lost THEN all rows have their group and their number."""
    for seed in seeds("numbered"):
        one = played(seed, burst=burst)
        rows = one.rows if sized else replace(one.rows, elements=[0] * len(one.truth))
        found = numbered(rows, one.calls[-40 - 4 * (burst + 1) :], whole=True)
        assert [group for group, _ in told(found)] == [group for group, _ in one.truth]
        assert not sized or told(found) == one.truth
        assert wrong(found, one) == 0
        assert sorted(told(found)) == sorted(one.truth)


@pytest.mark.parametrize("sized", [True, False], ids=["sizes", "no sizes"])
def test_groups_that_are_called_at_once_are_told_apart_or_not_at_all(sized: bool) -> None:
    right = 0
    for seed in range(3 * len(seeds("numbered"))):
        one = played(seed, waits=False)
        rows = one.rows if sized else replace(one.rows, elements=[0] * len(one.truth))
        found = numbered(rows, one.calls[-100:], whole=True)
        right += sorted(told(found)) == sorted(one.truth)
        assert wrong(found, one) == 0
    assert right == 3 * len(seeds("numbered")) or not sized


def test_rows_before_the_first_remembered_call_are_not_counted_where_some_were_lost() -> None:
    one = played(1)
    remembered = one.calls[-56:]
    found = numbered(one.rows, remembered, whole=False)
    known = [at for at, (group, _) in enumerate(told(found)) if group]
    assert 30 <= len(known) <= 40
    assert min(known) == len(one.truth) - len(known)
    assert sorted(told(found)[min(known) :]) == sorted(one.truth[min(known) :])


def test_rows_before_it_are_not_counted_beside_a_thread_that_no_remembered_call_tells_of() -> None:
    """GIVEN earlier rows on a thread of their own WHEN these may be of any group THEN only later rows have numbers."""
    one = played(1)
    thread = one.rows.thread.copy()
    thread[20:40] = 99
    found = told(numbered(replace(one.rows, thread=thread), one.calls[-56:], whole=True))
    known = [at for at, (group, _) in enumerate(found) if group]
    assert min(known) > 100
    assert found[min(known) :] == one.truth[min(known) :]


def test_calls_between_two_ranks_are_left_as_they_are() -> None:
    one = played(2)
    at = len(one.truth) - 30
    rows = Rows(
        np.insert(one.rows.start, at, one.rows.start[at]),
        np.insert(one.rows.called, at, one.rows.called[at]),
        np.insert(one.rows.thread, at, 99),
        [*one.rows.op[:at], "send", *one.rows.op[at:]],
        [*one.rows.elements[:at], 16, *one.rows.elements[at:]],
    )
    found = told(numbered(rows, one.calls[-60:], whole=True))
    assert found.pop(at) == ("", -1)
    assert sorted(found) == sorted(one.truth)


def contradictory(one: Played, how: str) -> tuple[Rows, Sequence[RememberedCall]]:
    calls, rows = one.calls[-60:], one.rows
    if how == "a number twice":
        calls[-20] = replace(calls[-20], sequence=calls[-20].sequence - 1)
    elif how == "a number missing":
        calls = [replace(call, sequence=call.sequence + (call.created_ns > calls[30].created_ns)) for call in calls]
    elif how == "one thread for all groups":
        rows = replace(rows, thread=np.zeros_like(rows.thread))
    elif how == "other operations":
        calls = [replace(call, operation="broadcast") for call in calls]
    elif how == "another clock":
        calls = [replace(call, created_ns=call.created_ns + 3600 * 1000 * MS) for call in calls]
    elif how == "numbers below the first":
        calls = [replace(call, sequence=call.sequence - FIRST - 150) for call in calls]
    return rows, calls


@pytest.mark.parametrize(
    "how",
    [
        "a number twice",
        "a number missing",
        "one thread for all groups",
        "other operations",
        "another clock",
        "numbers below the first",
    ],
)
def test_what_contradicts_leaves_all_rows_without_numbers(how: str) -> None:
    rows, calls = contradictory(played(3), how)
    found = numbered(rows, calls, whole=True)
    assert (set(found.group), set(found.sequence.tolist()), found.why_not) == ({""}, {-1}, NOT_FITTING)


def test_nothing_remembered() -> None:
    found = numbered(played(4).rows, [], whole=True)
    assert (set(found.group), set(found.sequence.tolist()), found.why_not) == ({""}, {-1}, NOT_ASKED)
