"""Work outside operators: functions that samples saw on a thread, less the operators within them.

A sample is exact to its period, so these are estimates. Of a function's stretch counts what is in no operator and no
call that was recorded, and in no function that it called itself.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.events import NO_END, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.accounting import KNOWN, beside_of, by_thread, window_of
from profd.query.intervals import merged
from profd.segments.meta import TraceMeta

OUTSIDE_COLUMNS: Final = ("name", "parent")  # beside those of the coverage
FUNCTIONS: Final = 5
_RECORDED: Final = (*KNOWN[0], *KNOWN[1])
_SPANS_MAX: Final = 1 << 22  # operators apart from one another: 64 MiB
_ROWS: Final = 5
_CLIMB_MAX: Final = 256  # functions around one another
# `.*` in their place would be tried once for each time that a name of a million characters has what stands before.
_QUALIFIED: Final = r"[\w.<>]*"
_CALLBACK: Final = re.compile(rf"asyncio/events\.py\(\d+\): {_QUALIFIED}\b_run")
# What calls these does not wait for what they call: a forked process keeps the stack of its parent, and a callback of
# asyncio is the event loop's.
_BEGINS_ANEW: Final = re.compile(rf"multiprocessing/process\.py\(\d+\): {_QUALIFIED}_bootstrap|{_CALLBACK.pattern}")
_MODULE: Final = re.compile(r"(\w+)(?:\.py\(|/)|<frozen ")  # of a name without the folder it is installed in


@dataclass(frozen=True, slots=True)
class _Samples:
    row: Array
    parent: Array
    name: Array
    start: Array
    end: Array


@dataclass(frozen=True, slots=True)
class Innermost:
    """When samples saw a function: starts and ends, apart and in order. Operators in it are part of that."""

    name: str
    within: tuple[Array, Array]  # it, or what it called
    below: tuple[Array, Array]  # what it called, which is none of its own
    rows: list[int]


class Outside:
    """Of the threads of a trace that have samples beside them; fed with tables in start order."""

    def __init__(self, meta: TraceMeta, thread: int | None = None) -> None:
        """`thread`: this one alone, by its track number, also where its samples are on a track of their own."""
        self._window = window_of(meta)
        self._thread_of = beside_of(meta.tracks)
        own = np.arange(len(self._thread_of))
        self._sampled = np.zeros(len(own), dtype=bool)
        if thread is None:
            self._sampled[self._thread_of[self._thread_of != own]] = True
        elif 0 <= thread < len(own):
            self._sampled[thread] = True
        self._names: list[str] = []
        self._samples: dict[int, list[_Samples]] = {}
        self._recorded: dict[int, list[tuple[Array, Array]]] = {}
        self._spans = 0

    @property
    def wanted(self) -> bool:
        """There is something to be said."""
        return self._window is not None and bool(self._sampled.any())

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        if self._window is None or not self.wanted or self._spans > _SPANS_MAX:
            return
        self._names = rules.names_of(table)
        kind, thread = table.column("kind"), table.column("thread")
        there = (thread >= 0) & (thread < len(self._thread_of)) & rules.is_cpu(table.column("device_type"))
        first, last = self._window
        start = np.clip(table.columns["start"], first, last)
        end = table.column("end")
        end = np.clip(np.where(end == NO_END, last, end), start, last)
        samples = np.flatnonzero(there & (kind == Kind.SAMPLE))
        recorded = np.flatnonzero(there & rules.is_kind(kind, *_RECORDED) & ~rules.is_async(table))
        for number, rows in by_thread(thread, samples):
            parent, name = table.column("parent")[rows], table.column("name")[rows]
            found = _Samples(rows + table.first_row, parent, name, start[rows], end[rows])
            self._samples.setdefault(int(self._thread_of[number]), []).append(found)
        for number, rows in by_thread(thread, recorded[self._sampled[thread[recorded]]]):
            spans = merged(start[rows], end[rows])
            self._recorded.setdefault(number, []).append(spans)
            self._spans += len(spans[0])

    def of(self, thread: int) -> list[dict[str, Any]] | None:
        """The functions with most time, by the track number of their thread; None: not sampled, or too much to say."""
        found = self._spent(thread, [])
        return None if found is None else [{"name": name, "wall_ns": ns} for name, ns, _ in found[:FUNCTIONS]]

    def of_program(self, thread: int, but: tuple[Array, Array]) -> list[tuple[str, int, list[int]]]:
        """The functions that the program calls, with what they call of the standard library: name, ns, rows.

        Most time first; rows of the trace, the longest first. `but`: starts and ends of stretches that do not count.
        """
        return self._spent(thread, [but], climb=_of_standard_library) or []

    def of_callbacks(self, thread: int, but: tuple[Array, Array]) -> list[tuple[str, int, list[int]]]:
        """The same within callbacks of asyncio's event loop alone; what is the loop's own has no row."""
        found = self._spent(thread, [but], climb=_of_standard_library, within=_is_callback) or []
        return [one for one in found if not _of_standard_library(one[0])]

    def innermost(self, thread: int, climb: Callable[[str], bool]) -> list[Innermost]:
        """The functions that were most often the innermost ones that samples saw; empty: not sampled.

        `climb`: functions whose time is their caller's; the standard library's is, too.
        """
        parts = self._samples.get(thread)
        if parts is None:
            return []
        row, parent, name, start, end = _joined(parts)
        place = np.minimum(np.searchsorted(row, parent), len(row) - 1)
        inner = row[place] == parent
        own = (end - start) - np.bincount(place[inner], weights=(end - start)[inner], minlength=len(row))
        named = name[self._climbed(lambda text: climb(text) or _of_standard_library(text), name, place, inner)]
        caller = np.where(inner, named[place], -1)
        found = []
        for code in np.argsort(-np.bincount(named, weights=own), kind="stable")[:FUNCTIONS].tolist():
            mine = np.flatnonzero(named == code)
            below = np.flatnonzero((caller == code) & (named != code))
            rows = row[mine[np.argsort(-own[mine], kind="stable")][:_ROWS]].tolist()
            within, inside = (merged(start[at], end[at]) for at in (mine, below))
            found.append(Innermost(self._names[code], within, inside, rows))
        return found

    def _spent(
        self,
        thread: int,
        but: list[tuple[Array, Array]],
        climb: Callable[[str], bool] | None = None,
        within: Callable[[str], bool] | None = None,
    ) -> list[tuple[str, int, list[int]]] | None:
        parts = self._samples.get(thread)
        if parts is None or self._spans > _SPANS_MAX:
            return None
        row, parent, name, start, end = _joined(parts)
        recorded = [_NOTHING, *self._recorded.get(thread, []), *but]
        covered = _Intervals(*map(np.concatenate, zip(*recorded, strict=True)))
        spent = covered.outside(start, end)
        place = np.minimum(np.searchsorted(row, parent), len(row) - 1)
        inner = row[place] == parent
        own = spent - np.bincount(place[inner], weights=spent[inner], minlength=len(spent)).astype(np.int64)
        if within is not None:
            own = np.where(self._below(within, name, place, inner), own, 0)
        if climb is not None:
            name = name[self._climbed(climb, name, place, inner)]
        names, code = np.unique(name, return_inverse=True)
        total = np.bincount(code, weights=np.maximum(own, 0)).astype(np.int64)
        most = [at for at in np.argsort(-total, kind="stable").tolist() if total[at] > 0]
        longest = np.argsort(-own, kind="stable")
        return [
            (self._names[int(names[at])], int(total[at]), row[longest[code[longest] == at][:_ROWS]].tolist())
            for at in most[:FUNCTIONS]
        ]

    def _climbed(self, climb: Callable[[str], bool], name: Array, place: Array, inner: Array) -> Array:
        """The place of each row, or of the nearest one around it that is not to be climbed over, where there is one."""
        begins = self._those(_begins_anew, name)
        over = self._those(climb, name) & ~begins
        at = np.arange(len(name))
        for _ in range(_CLIMB_MAX):
            going = over[at] & inner[at]
            if not going.any():
                break
            at = np.where(going, place[at], at)
        return np.where(over[at] | begins[at], np.arange(len(name)), at)

    def _below(self, within: Callable[[str], bool], name: Array, place: Array, inner: Array) -> Array:
        """Whether each row has one of these around it."""
        those, at = self._those(within, name), np.arange(len(name))
        found = np.zeros(len(name), dtype=bool)
        for _ in range(_CLIMB_MAX):
            going = inner[at] & ~found
            if not going.any():
                break
            at = np.where(going, place[at], at)
            found |= going & those[at]
        return found

    def _those(self, wanted: Callable[[str], bool], name: Array) -> Array:
        return np.array([wanted(text) for text in self._names], dtype=bool)[name]


def _joined(parts: list[_Samples]) -> tuple[Array, ...]:
    return tuple(
        np.concatenate([getattr(part, field) for part in parts]) for field in ("row", "parent", "name", "start", "end")
    )


def _of_standard_library(name: str) -> bool:
    """By the name of a sampled function: of another module that is called alike, if that is installed, too."""
    found = _MODULE.match(name)
    return found is not None and (found[1] is None or found[1] in sys.stdlib_module_names)


def _begins_anew(name: str) -> bool:
    return _BEGINS_ANEW.search(name) is not None


def _is_callback(name: str) -> bool:
    return _CALLBACK.search(name) is not None


_NOTHING: Final = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class _Intervals:
    """How much of any stretch these intervals leave."""

    def __init__(self, start: Array, end: Array) -> None:
        self._start, self._end = merged(start, end)
        self._before = np.concatenate([[0], np.cumsum(self._end - self._start)])

    def outside(self, start: Array, end: Array) -> Array:
        """The length of each less what is covered of it."""
        left: Array = (end - start) - (self._until(end) - self._until(start))
        return left

    def _until(self, time: Array) -> Array:
        """How much is covered before these times."""
        begun = np.searchsorted(self._start, time, side="right")
        if not len(self._start):
            return np.zeros(len(time), dtype=np.int64)
        last = np.maximum(begun - 1, 0)
        open_yet = np.where(begun > 0, np.minimum(time, self._end[last]) - self._start[last], 0)
        found: Array = self._before[last] + open_yet
        return found
