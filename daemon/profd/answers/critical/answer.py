"""The question `critical`: what the end of the measured steps waited for, and what had been gained without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.answers.critical.dependencies import queue_of, waits_of
from profd.answers.critical.gathered import Gathered, gather
from profd.answers.critical.path import Part, Path, walk
from profd.answers.critical.replay import Replay
from profd.answers.critical.timeline import Timeline, timeline
from profd.answers.explain import FOUND, NOT_ENOUGH
from profd.answers.ranks.names import is_kernel
from profd.answers.spans import Spans
from profd.answers.work import NO_PLACE
from profd.events import NO_CODE, NO_END, Kind
from profd.events.table import Array
from profd.segments.reader import TraceReader

LIMIT_DEFAULT: Final = 10
REPLAYED_MAX: Final = 5  # rows whose gain is played: a second for a million kernels each
OUTSIDE: Final = "(outside operators and functions)"
_PARTS: Final = {
    Part.HOST: "host_ns",
    Part.DEVICE: "device_ns",
    Part.LAUNCH: "launch_ns",
    Part.RETURN: "return_ns",
    Part.GAP: "gap_ns",
}
_DEVICE_WORDS: Final = {Kind.MEMCPY: "copy", Kind.MEMSET: "fill"}


@dataclass(frozen=True, slots=True)
class _Row:
    """One name on the path."""

    where: str  # host, kernel, collective, copy, fill
    code: int  # of the name
    calls: int
    time: int  # ns on the path


def critical(trace: TraceReader, limit: int = LIMIT_DEFAULT) -> dict[str, Any]:
    """The answer of docs/json.md. Raises Exhausted for a trace of too many events."""
    gathered = gather(trace)
    measured = gathered.measured
    if measured.lacking:
        return _answer(NOT_ENOUGH, measured.lacking)
    found = _Found(gathered)
    names = trace.dictionaries["name"].values if "name" in trace.dictionaries else []
    rows = sorted([*found.host_rows(), *found.device_rows(names)], key=lambda row: (-row.time, row.where, row.code))
    shown = rows[: limit or len(rows)]
    numbers = measured.numbers
    return _answer(
        FOUND,
        steps={"n": measured.steps, "first": numbers[0], "last": numbers[-1], "from": measured.how},
        path={
            "duration_ns": found.path.end - found.path.start,
            **{key: found.path.time(part) for part, key in _PARTS.items()},
        },
        rows=[
            {
                "where": row.where,
                "name": names[row.code] if row.code != NO_CODE else OUTSIDE,
                "calls": row.calls if row.code != NO_CODE else None,
                "path_ns": row.time,
                "without_ns": found.without(row) if place < REPLAYED_MAX else None,
            }
            for place, row in enumerate(shown)
        ],
        left_out=len(rows) - len(shown),
        without_waits_ns=found.without_waits(),
    )


def _answer(status: str, message: str | None = None, **found: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"steps": None, "path": None, "rows": [], "left_out": 0, "without_waits_ns": None}
    return {"status": status, "message": message, **nothing, **found}


class _Found:
    """The path of a trace, and what is played again."""

    def __init__(self, gathered: Gathered) -> None:
        self._host, self._work = gathered.host, gathered.work
        measured, work = gathered.measured, gathered.work
        start, host_end = int(measured.start[0]), int(measured.end[-1])
        queue = queue_of(work)
        whole = timeline(gathered.host, measured.thread)
        waits = waits_of(gathered.host, work, whole)
        closing = (queue.launched != NO_END) & (queue.launched >= start) & (queue.launched < host_end)
        last = _last(work.end, closing, host_end)
        end = host_end if last == NO_PLACE else int(work.end[last])
        self.path: Path = walk(work, queue, waits.standing(), start, end, last)
        self._line: Timeline = whole.cut(start, host_end)
        self._closing = closing
        self._replay = Replay(work, queue, waits, start, host_end, closing)
        self._waits = len(waits.standing().start) > 0

    def host_rows(self) -> list[_Row]:
        """By name of the innermost call."""
        line = self._line
        time = self.path.on_host.within(line.start, line.end)
        on = np.flatnonzero(time > 0)
        place = line.place[on]
        called = np.zeros(len(self._host.row), dtype=bool)
        called[place[place != NO_PLACE]] = True
        return _rows("host", self._names(place), time[on], self._host.name[called])

    def device_rows(self, names: list[str]) -> list[_Row]:
        """By name of the work."""
        on = np.flatnonzero(self.path.part == Part.DEVICE)
        work = self.path.work[on]
        time, name = (self.path.until - self.path.begin)[on], self._work.name[work]
        kind = dict(zip(name.tolist(), self._work.kind[work].tolist(), strict=True))
        found = _rows("kernel", name, time, name)
        return [_Row(_word(kind[row.code], names[row.code]), row.code, row.calls, row.time) for row in found]

    def without(self, row: _Row) -> int:
        """How long the window had lasted."""
        if row.where != "host":
            # What the steps before have launched stays as it was.
            return self._replay.lasts(free=self._closing & (self._work.name == row.code))
        line = self._line
        mine = self._names(line.place) == row.code
        return self._replay.lasts(gone=Spans.union(line.start[mine], line.end[mine]))

    def without_waits(self) -> int | None:
        """The same, had the host never waited for a device; None where it never did."""
        return self._replay.lasts(never_waits=True) if self._waits else None

    def _names(self, place: Array) -> Array:
        found: Array = np.full(len(place), NO_CODE, dtype=np.int64)
        named = place != NO_PLACE
        found[named] = self._host.name[place[named]]
        return found


def _last(ends: Array, closing: Array, host_end: int) -> int:
    """The work that ends the window; NO_PLACE: the host does."""
    mine = np.flatnonzero(closing)
    if not len(mine):
        return NO_PLACE
    last = int(mine[np.argmax(ends[mine])])
    return last if ends[last] > host_end else NO_PLACE


def _rows(where: str, names: Array, time: Array, calls: Array) -> list[_Row]:
    """`names`: codes of stretches of the path, and `time` how long each is; `calls`: the code of each call on it."""
    place = names - NO_CODE  # from 0 on
    total = np.zeros(np.max(place, initial=0) + 1, dtype=np.int64)
    np.add.at(total, place, time)
    count = np.bincount(calls - NO_CODE, minlength=len(total))
    return [_Row(where, at + NO_CODE, int(count[at]), int(total[at])) for at in np.flatnonzero(total).tolist()]


def _word(kind: int, name: str) -> str:
    if is_kernel(name):
        return "collective"
    return _DEVICE_WORDS.get(Kind(kind), "kernel")
