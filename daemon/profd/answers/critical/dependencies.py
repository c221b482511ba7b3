"""What each piece of device work, and each wait of the host, waited for. Times in ns; places are those of Work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from profd.answers.critical.gathered import Host
from profd.answers.critical.timeline import Timeline
from profd.answers.work import NO_PLACE, Work
from profd.events import NO_END
from profd.events.table import Array

GAP_NS: Final = 10_000
"""A device that idles so long before work that was launched, and is next on its stream, waits for another stream."""
LATENCY_PERCENTILE: Final = 5  # of launches to an idle stream: so long one takes where nothing is in its way
SLOW_LAUNCH_NS: Final = 100_000
SLOW_LAUNCH_MEDIANS: Final = 20
"""A launch that takes so long waits for room in the queue of its device."""

ALL_STREAMS: Final = -2
STREAMS_MAX: Final = 256  # that a wait for all of them is said to wait for


class Reason(IntEnum):
    """What the begin of device work waited for last."""

    LAUNCH = 0
    STREAM = 1  # the work before it on its stream
    OTHER = 2  # work of another stream
    NOTHING = 3  # that was recorded


@dataclass(frozen=True, slots=True)
class Queue:
    """For each piece of device work."""

    reason: Array  # Reason
    before: Array  # the work before it on its stream; NO_PLACE: none
    other: Array  # the work of another stream that it waited for; NO_PLACE: none
    launched: Array  # when it was launched at the earliest; NO_END: not known
    delay: Array  # from there to its begin, where nothing else was in its way
    after_before: Array  # from the end of `before` to its begin, where that is what it waited for; else 0
    after_other: Array  # the same of `other`


@dataclass(frozen=True, slots=True)
class Waits:
    """Calls that wait for a device, in order, none within another."""

    start: Array
    end: Array
    work: Array  # what ended last in each: it stood still for that; NO_PLACE: nothing ended in it
    also: list[list[int]]  # what else had to have ended, one of each stream

    def standing(self) -> Waits:
        """The waits in which the host stood still."""
        at = np.flatnonzero(self.work != NO_PLACE)
        return Waits(self.start[at], self.end[at], self.work[at], [self.also[place] for place in at.tolist()])


def queue_of(work: Work) -> Queue:
    """The queues of all streams."""
    before = _before(work)
    has_before, known = before != NO_PLACE, work.launch != NO_END
    before_end = np.where(has_before, work.end[before], np.iinfo(np.int64).min)
    launch = np.where(known, np.minimum(work.launch, work.start), np.iinfo(np.int64).min)
    idle = known & (before_end <= launch)
    latency = int(np.percentile((work.start - launch)[idle], LATENCY_PERCENTILE)) if idle.any() else 0
    ready = np.where(known, np.minimum(launch + latency, work.start), launch)
    explained = np.maximum(ready, before_end)
    other = _others(work, explained)
    reason = np.where(ready >= before_end, Reason.LAUNCH, Reason.STREAM)
    reason = np.where(other != NO_PLACE, Reason.OTHER, reason)
    reason = np.where(known | has_before, reason, Reason.NOTHING)
    return Queue(
        reason=reason,
        before=before,
        other=other,
        launched=np.where(known, launch, NO_END),
        delay=np.where(reason == Reason.LAUNCH, work.start - launch, np.where(known, ready - launch, 0)),
        after_before=np.where(reason == Reason.STREAM, work.start - before_end, 0),
        after_other=np.where(other != NO_PLACE, work.start - work.end[other], 0),
    )


def _before(work: Work) -> Array:
    """The work before each on its stream, where that had ended: what overlaps is no queue."""
    order = np.lexsort((np.arange(len(work)), work.stream))
    before = np.full(len(work), NO_PLACE)
    follows = np.flatnonzero(np.diff(work.stream[order]) == 0)
    before[order[follows + 1]] = order[follows]
    before[(before != NO_PLACE) & (work.end[before] > work.start)] = NO_PLACE
    return before


def _others(work: Work, explained: Array) -> Array:
    """Of work that began later than it could, the work that ended last before it; NO_PLACE elsewhere."""
    found = np.full(len(work), NO_PLACE)
    late = np.flatnonzero(work.start - explained > GAP_NS)
    if not len(late):
        return found
    by_end = np.lexsort((np.arange(len(work)), work.end))
    last = by_end[np.maximum(np.searchsorted(work.end[by_end], work.start[late], side="right") - 1, 0)]
    fits = (last < late) & (work.end[last] <= work.start[late]) & (work.end[last] > explained[late])
    found[late[fits]] = last[fits]
    return found


def waits_of(host: Host, work: Work, line: Timeline) -> Waits:
    """The waits of the timeline."""
    waiting = host.waits | _slow_launches(host, work) | _blocking(host, work)
    mine = np.flatnonzero(waiting & _calls_on(host, line)) if len(work) else np.zeros(0, dtype=np.int64)
    reached = np.maximum.accumulate(host.end[mine])
    mine = mine[np.concatenate([np.ones(min(len(mine), 1), dtype=bool), host.start[mine][1:] >= reached[:-1]])]
    start, end = host.start[mine], host.end[mine]
    last = _ended_last(work, start, end)
    stream = np.where(last != NO_PLACE, work.stream[last], NO_PLACE) if len(work) else last
    also = _launched_before(work, start, end, np.where(host.waits_for_all[mine], ALL_STREAMS, stream))
    return Waits(start, end, last, also)


def _ended_last(work: Work, start: Array, end: Array) -> Array:
    """What ended last in each wait, and had been launched before it or by it; NO_PLACE: nothing."""
    if not len(work):
        return np.full(len(start), NO_PLACE)
    by_end = np.lexsort((np.arange(len(work)), work.end))
    last = by_end[np.maximum(np.searchsorted(work.end[by_end], end, side="right") - 1, 0)]
    launched = np.where(work.launch[last] == NO_END, work.start[last], work.launch[last])
    held = (work.end[last] > start) & (work.end[last] <= end) & (launched <= start)
    found: Array = np.where(held, last, NO_PLACE)
    return found


def _launched_before(work: Work, start: Array, end: Array, wanted: Array) -> list[list[int]]:
    """The last work of each stream that had been launched before each wait; of the wanted stream alone."""
    found: list[list[int]] = [[] for _ in range(len(start))]
    for stream in np.unique(work.stream).tolist()[:STREAMS_MAX]:
        mine = np.flatnonzero((work.stream == stream) & (work.launch != NO_END))
        launches = np.maximum.accumulate(work.launch[mine])
        place = np.searchsorted(launches, start) - 1
        asked = np.flatnonzero((place >= 0) & ((wanted == ALL_STREAMS) | (wanted == stream)))
        last = mine[place[asked]]
        for at, which in zip(asked.tolist(), last.tolist(), strict=True):
            if work.end[which] <= end[at]:
                found[at].append(which)
    return found


def _calls_on(host: Host, line: Timeline) -> Array:
    """Which calls are on the timeline: at the begin of each, it or a call within it is the innermost."""
    innermost = line.at(host.start)
    there = innermost != NO_PLACE
    there[there] = host.thread[innermost[there]] == host.thread[there]
    found: Array = there
    return found


def _slow_launches(host: Host, work: Work) -> Array:
    launches = np.isin(host.row, work.call)
    lasting = host.end - host.start
    if not launches.any():
        return launches
    slow = max(SLOW_LAUNCH_NS, SLOW_LAUNCH_MEDIANS * float(np.median(lasting[launches])))
    found: Array = launches & (lasting >= slow)
    return found


def _blocking(host: Host, work: Work) -> Array:
    """Calls that return only when what they launched has ended, as a copy to pageable memory does."""
    found = np.zeros(len(host.row), dtype=bool)
    order = np.argsort(host.row, kind="stable")
    place = np.searchsorted(host.row[order], work.call)
    place = order[np.minimum(place, max(len(order) - 1, 0))] if len(order) else place
    if len(order):
        fits = (host.row[place] == work.call) & (work.launch != NO_END) & (work.end <= host.end[place])
        found[place[fits]] = True
    return found
