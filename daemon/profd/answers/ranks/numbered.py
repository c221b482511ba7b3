"""Group and sequence of gloo's collectives, by what torch's flight recorder remembered at the end of the window.

A row of gloo says neither. The recorder says both, and when each collective was called. A group has threads of its own,
which take its calls in order: the n-th row on them is the n-th call, where the last rows are the last calls that had
been made by then. So calls that are no longer remembered are numbered, too, back to the begin of the window.

What contradicts this (a number that is missing or comes twice, a thread of several groups) leaves all rows of the rank
without numbers. One thing cannot be seen: a group that always had more calls waiting than it has threads.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.ranks import names
from profd.events.table import Array
from profd.model.remembered import RememberedCall

SLACK_NS: Final = 50_000  # by which a row may begin before its call, by clocks that are read one after the other
SURE: Final = 2 / 3  # of the rows of a thread are of its group
_NONE: Final = np.zeros(0, dtype=np.int64)
NOT_ASKED: Final = "their flight recorder was not asked"
NOT_FITTING: Final = "what their flight recorder remembers does not fit these rows"


@dataclass(frozen=True, slots=True)
class Rows:
    """Collectives of one rank in start order; times in Unix ns. `elements`: of the input; 0: not recorded.

    `called`: when, as far as `when_called` can tell; two threads may begin two calls in the other order.
    """

    start: Array
    called: Array
    thread: Array
    op: Sequence[str]
    elements: Sequence[int]


@dataclass(frozen=True, slots=True)
class Numbered:
    """Of each row its group, empty where it is not known, and its number in that, then -1."""

    group: list[str]
    sequence: Array
    why_not: str = ""  # none has one

    @classmethod
    def none(cls, rows: int, why: str) -> Numbered:
        """Nothing is known of any row."""
        return cls([""] * rows, np.full(rows, -1, dtype=np.int64), why)


def numbered(rows: Rows, calls: Sequence[RememberedCall], *, whole: bool) -> Numbered:
    """`whole`: no row of the window was lost, so that rows before the first remembered call can be counted."""
    count = len(rows.start)
    if not calls:
        return Numbered.none(count, NOT_ASKED)
    found = Numbered.none(count, "")
    by_group, together = _threads(rows, calls), _together(rows)
    known = together & np.isin(rows.thread, list(itertools.chain(*by_group.values())))
    if not known.any() or (together & ~known & (rows.start > calls[0].created_ns)).any():
        return Numbered.none(count, NOT_FITTING)
    whole = whole and bool(known[together].all())  # earlier rows of another thread may be of any group
    for group, threads in by_group.items():
        mine = np.flatnonzero(together & np.isin(rows.thread, threads))
        pairs = _of_group(rows, mine, [call for call in calls if call.group == group], len(threads), whole=whole)
        if pairs is None:
            return Numbered.none(count, NOT_FITTING)
        found.sequence[pairs[0]] = pairs[1]
        for at in pairs[0].tolist():
            found.group[at] = group
    return found


def _of_group(
    rows: Rows, mine: Array, calls: Sequence[RememberedCall], threads: int, *, whole: bool
) -> tuple[Array, Array] | None:
    """(places of rows, the number of each) of a group, whose rows are `mine`; None: something contradicts."""
    places, sequence = _paired(rows, mine, calls)
    if not (_fits(sequence, threads) and _steady(rows.start[mine], calls)):
        return None
    before = np.setdiff1d(mine, places)
    if (np.searchsorted(places, before) > threads).any():
        return None
    if not whole:
        return places, sequence
    before = before[np.argsort(rows.called[before], kind="stable")]
    first = int(sequence.min()) - len(before)
    if first < 0:
        return None
    return np.concatenate([before, places]), np.concatenate([first + np.arange(len(before)), sequence])


def when_called(
    start: Array, kinds: Sequence[tuple[str, int]], call_start: Array, call_kinds: Sequence[tuple[str, int]]
) -> Array:
    """Of each row when its call began: rows and calls of one kind (operation, elements) come in the same order."""
    found = start.copy()
    calls = _places(call_kinds)
    for kind, rows in _places(kinds).items():
        if kind in calls:
            mine, those = _in_turn(start[rows], call_start[calls[kind]].tolist())
            found[rows[mine]] = call_start[calls[kind][those]]
    return found


def _places(kinds: Iterable[Hashable]) -> dict[Hashable, Array]:
    """Where each of them is, in order; in one pass, since a trace may have as many as rows."""
    found: dict[Hashable, list[int]] = {}
    for at, kind in enumerate(kinds):
        found.setdefault(kind, []).append(at)
    return {kind: np.array(some, dtype=np.int64) for kind, some in found.items()}


def _together(rows: Rows) -> Array:
    """Which rows are collectives of a whole group."""
    return np.array([bool(op) and op not in names.POINT_TO_POINT for op in rows.op], dtype=bool)


def _threads(rows: Rows, calls: Sequence[RememberedCall]) -> dict[str, list[int]]:
    """The threads of each group: by the calls that most of their rows are, taken for themselves."""
    votes: dict[int, Counter[str]] = {}
    ours = np.flatnonzero(_together(rows))
    for places, those in _by_kind(rows, ours, calls):
        for at, call in zip(*_in_turn(rows.start[places], [call.created_ns for call in those]), strict=True):
            votes.setdefault(int(rows.thread[places[at]]), Counter())[those[call].group] += 1
    found: dict[str, list[int]] = {}
    for thread, of in votes.items():
        group, times = of.most_common(1)[0]
        if times >= SURE * of.total():
            found.setdefault(group, []).append(thread)
    return found


def _by_kind(rows: Rows, places: Array, calls: Sequence[RememberedCall]) -> list[tuple[Array, list[RememberedCall]]]:
    """Rows and calls of one operation and, where both say it, one size."""
    found = []
    by_op = _places(rows.op[at] for at in places.tolist())
    for op, some in _places(names.op_of(call.operation) for call in calls).items():
        those = [calls[at] for at in some.tolist()]
        mine = places[by_op.get(op, _NONE)]
        by_size = _places(rows.elements[at] for at in mine.tolist())
        if 0 in by_size or not {call.elements for call in those} <= set(by_size):
            found.append((mine, those))
            continue
        for size, some in _places(call.elements for call in those).items():
            found.append((mine[by_size[size]], [those[at] for at in some.tolist()]))
    return found


def _in_turn(start: Array, created: Sequence[int]) -> tuple[list[int], list[int]]:
    """Places of rows and of the calls that they are: in order, and no row before its call."""
    rows, waiting = _waiting(start, created)
    if not len(rows):
        return [], []
    calls = np.arange(len(rows)) + waiting.min()
    known = calls >= 0
    return rows[known].tolist(), calls[known].tolist()


def _waiting(start: Array, created: Sequence[int]) -> tuple[Array, Array]:
    """(rows that began since the first call, by how many more calls than rows there had been when each began)."""
    last = np.searchsorted(np.array(created, dtype=np.int64), start + SLACK_NS, side="right") - 1
    rows = np.flatnonzero(last >= 0)
    return rows, last[rows] - np.arange(len(rows))


def _steady(start: Array, calls: Sequence[RememberedCall]) -> bool:
    """No row is missing or too many: the calls run as far ahead of the rows at the end as they do at the begin."""
    _, waiting = _waiting(start, [call.created_ns for call in calls])
    half = len(waiting) // 2
    return half == 0 or bool(waiting[:half].min() == waiting[half:].min())


def _paired(rows: Rows, places: Array, calls: Sequence[RememberedCall]) -> tuple[Array, Array]:
    """(places of rows in start order, the number of each) of one group."""
    pairs: list[tuple[int, int]] = []
    for mine, those in _by_kind(rows, places, calls):
        for at, call in zip(*_in_turn(rows.start[mine], [call.created_ns for call in those]), strict=True):
            pairs.append((int(mine[at]), those[call].sequence))
    pairs.sort()
    return np.array([at for at, _ in pairs], dtype=np.int64), np.array([number for _, number in pairs], dtype=np.int64)


def _fits(sequence: Array, threads: int) -> bool:
    """No number is missing or comes twice, and rows are in the order of calls, as far as threads let them be."""
    if not len(sequence):
        return False
    order = np.argsort(sequence, kind="stable")
    apart = np.abs(order - np.arange(len(order)))
    return bool((np.diff(sequence[order]) == 1).all() and apart.max() <= threads)
