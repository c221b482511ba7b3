"""What threads did while rows of `top` were the innermost ones: estimates, from looks at the threads in the window.

A look says of a thread whether it runs (or is ready to), waits for the GIL or for another lock, or is off the CPU for
anything else (targets/waits.py). The row that was innermost then has that look; the kernel's counts say how much of
its time the thread ran, and were ready, in all. Nothing is taken per event.
docs/decisions/0037-waits-by-looks.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events import NO_END, NO_ROW, EventTable
from profd.events.table import Array
from profd.model.run_times import IN_GIL, IN_LOCK, OFF, RUNS, UNSEEN, ThreadTimes
from profd.query.accounting import LOOKS_MIN, beside_of
from profd.query.roles import NESTS, having, roles_of
from profd.query.view import CallColumns
from profd.segments.meta import TraceMeta

FIELDS: Final = tuple(f"self_{what}_estimate_ns" for what in ("on_cpu", "run_queue", "gil", "lock", "off_cpu"))
"""Of self time, so that they add up to it, on threads that were looked at."""

_CLIMB_MAX: Final = 4096  # calls around a call that had ended when the thread was looked at
_ON_CPU, _QUEUED, _GIL, _LOCK, _OFF = range(len(FIELDS))


@dataclass(frozen=True, slots=True)
class _Thread:
    at: Array  # ns of looks, ascending
    place: Array  # of its state among FIELDS
    weight: Array  # of each: with these its time on the CPU is what the kernel counted
    queued: float  # of the time that it ran or was ready, the part that it was ready
    knows_gil: bool


class Looks:
    """The looks of one trace, by track."""

    def __init__(self, meta: TraceMeta, left_out: Collection[int] = ()) -> None:
        times = meta.run_times
        by_id = {str(thread.id): found for thread in times.threads if (found := _thread(times.looked_ns, thread))}
        ids = [str(track.get("id")) for track in meta.tracks.threads]
        own = beside_of(meta.tracks).tolist()
        self._tracks = {
            number: by_id[ids[of]] for number, of in enumerate(own) if ids[of] in by_id and number not in left_out
        }

    def spent(self, table: EventTable, calls: CallColumns, group: Array, groups: int) -> dict[str, list[int | None]]:
        """FIELDS and `looks` of each group. `group`: of each counted row. None: fewer than ten looks say nothing.

        A lock is every futex where the interpreter's own is not known, and the GIL then None.
        """
        ns, looks, blind = np.zeros((len(FIELDS), groups)), np.zeros(groups, dtype=np.int64), np.zeros(groups, bool)
        for thread, rows, innermost in self._seen(table, calls):
            hit = np.flatnonzero(innermost != NO_ROW)
            of = group[innermost[hit]]
            found = np.zeros_like(ns)
            np.add.at(found, (thread.place[hit], of), thread.weight[hit])
            weight = found.sum(axis=0)
            wall = np.bincount(group[rows], weights=calls.self_cpu[rows], minlength=groups)
            found *= np.divide(wall, weight, out=np.zeros(groups), where=weight > 0)
            found[_QUEUED] = thread.queued * found[_ON_CPU]
            found[_ON_CPU] -= found[_QUEUED]
            ns += found
            looks += np.bincount(of, minlength=groups)
            blind[of] |= not thread.knows_gil
        known = looks >= LOOKS_MIN
        sums: dict[str, list[int | None]] = {
            name: [int(value) if there else None for value, there in zip(np.rint(ns[place]), known, strict=True)]
            for place, name in enumerate(FIELDS)
        }
        gil = FIELDS[_GIL]
        sums[gil] = [None if unknown else value for value, unknown in zip(sums[gil], blind, strict=True)]
        sums["looks"] = [int(count) for count in looks]
        return sums

    def _seen(self, table: EventTable, calls: CallColumns) -> Iterator[tuple[_Thread, Array, Array]]:
        """Of each thread that was looked at: its counted rows, and for each look the innermost of these, or NO_ROW."""
        if not self._tracks:
            return
        on, nests = table.column("thread"), having(roles_of(table), NESTS).view(np.bool_) & (calls.cpu > 0)
        for track, thread in self._tracks.items():
            rows = np.flatnonzero(nests & (on == track))
            if len(rows):
                yield thread, rows[calls.counted[rows]], _innermost(table, calls, rows, thread.at)


def looks_of(meta: TraceMeta, left_out: Collection[int] = ()) -> Looks | None:
    """Without those at threads of the tracks that are left out. None: there was no look at a thread."""
    return Looks(meta, left_out) if meta.run_times.looked_ns else None


def _thread(looked_ns: list[int], thread: ThreadTimes) -> _Thread | None:
    if len(thread.states) != len(looked_ns) or not thread.lasted_ns:
        return None
    letters = np.frombuffer(thread.states.encode("ascii", "replace"), dtype=np.uint8)
    seen = np.flatnonzero(letters != ord(UNSEEN))
    if not len(seen):
        return None
    places = np.full(256, _OFF)
    for letter, at in ((RUNS, _ON_CPU), (IN_GIL, _GIL), (IN_LOCK, _LOCK), (OFF, _OFF)):
        places[ord(letter)] = at
    place = places[letters[seen]]
    runs = place == _ON_CPU
    ready = thread.ran_ns + thread.queued_ns
    share = min(ready / thread.lasted_ns, 1.0)
    weight = np.where(runs, share / max(runs.sum(), 1), (1 - share) / max((~runs).sum(), 1)) * len(seen)
    queued = thread.queued_ns / ready if ready else 0.0
    return _Thread(np.array(looked_ns, dtype=np.int64)[seen], place, weight, queued, thread.in_gil is not None)


def _innermost(table: EventTable, calls: CallColumns, rows: Array, moments: Array) -> Array:
    """The innermost counted row that is open at each moment. `rows`: those of the thread that nest, in start order."""
    begun = np.searchsorted(table.columns["start"][rows], moments, side="right") - 1
    at = np.where(begun >= 0, rows[np.maximum(begun, 0)], NO_ROW)
    end = table.column("end")
    for _ in range(_CLIMB_MAX):
        open_then = (end[at] > moments) | (end[at] == NO_END)
        over = np.flatnonzero((at != NO_ROW) & ~(open_then & calls.counted[at]))
        if not len(over):
            return at
        at[over] = calls.parent[at[over]]
    at[over] = NO_ROW
    return at
