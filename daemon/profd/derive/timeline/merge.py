"""Rows of a stream to lines of merged spans: what is put where, by number, for `profd._engine.merge_spans`.

What is put on a line for a row is a list of names, one for each level, outermost first; lists and names are told
once. With them may go as many scope ids, of which two that differ keep neighbours apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from profd import _engine
from profd.derive.timeline.lines import LineEvents
from profd.events.table import Array

_NOTHING = -1
Label = tuple[str, str]  # name shown, long name: what it is known by where that is not enough


@dataclass(slots=True)
class Puts:
    """What is put on one line. `after`: the line (by number) whose outermost events take those of this one along."""

    rows: int
    after: int = -1
    what: Array = field(init=False)
    scope: Array = field(init=False)
    labels: dict[tuple[str, Label], int] = field(default_factory=dict)
    _lists: list[list[int]] = field(default_factory=list)
    _scopes: list[Sequence[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.what = np.full(self.rows, _NOTHING, dtype=np.int32)
        self.scope = np.full(self.rows, _NOTHING, dtype=np.int32)

    def put(self, at: Array, which: Array, lists: Sequence[Sequence[tuple[str, Label]]]) -> None:
        """Put on each of some rows one of the lists of (key, label), a pair for each level."""
        if not len(at):  # of most lines nothing, and there may be tens of thousands of streams
            return
        self.what[at] = which + len(self._lists)
        self._lists += [[self.labels.setdefault(level, len(self.labels)) for level in levels] for levels in lists]

    def tell_apart(self, at: Array, values: Array, scopes: Callable[[int], Sequence[int]]) -> None:
        """Scope ids of rows, one for each level, by a value of theirs."""
        if not len(at):
            return
        distinct, place = np.unique(values[at], return_inverse=True)
        self.scope[at] = place + len(self._scopes)
        self._scopes += [scopes(value) for value in distinct.tolist()]

    def given(self) -> tuple[Array, Array, Array, Array, Array, Array, int]:
        """As the engine takes it."""
        keys, scopes = _flat(self._lists), _flat(self._scopes)
        return self.what, self.scope, keys[0], keys[1].astype(np.int32), *scopes, self.after


@dataclass(frozen=True, slots=True)
class Merged:
    """A line, and for each row the event that it began or went on with on the innermost level; -1 where none."""

    spans: LineEvents
    innermost: Array


def merge(
    lines: Sequence[Puts], start: Array, end: Array, group: Array, *, close_gaps: bool, close_last: bool
) -> list[Merged]:
    """Build lines together, from rows in the order of time.

    `close_gaps`: a span goes on however long after it the next one comes. `close_last`: what is open at the end is
    closed as all else. Events come in the order in which they began.
    """
    given = [puts.given() for puts in lines]
    found = _engine.merge_spans(start, end, group, given, close_gaps=close_gaps, close_last=close_last)
    return [
        Merged(LineEvents(begun, until, of, key.astype(np.int64), [label for _, label in puts.labels]), innermost)
        for puts, (key, begun, until, of, innermost) in zip(lines, found, strict=True)
    ]


def _flat(lists: Sequence[Sequence[int]]) -> tuple[Array, Array]:
    """(offsets, values) of lists one after the other."""
    if not lists:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64)
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return offsets, np.array([value for values in lists for value in values], dtype=np.int64)
