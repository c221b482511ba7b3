"""What the program did when: one thread after another, as if the host did one thing at a time. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.critical.gathered import Host
from profd.answers.spans import Spans
from profd.answers.work import NO_PLACE
from profd.events.table import Array

DELEGATED_NS: Final = 20_000
"""So long a call without calls of its own may wait for another thread, as `backward()` does for that of autograd."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Stretches that follow one another, and the innermost call of each: a place of Host, or NO_PLACE."""

    start: Array
    end: Array
    place: Array

    def at(self, moment: Array) -> Array:
        """The innermost call at each moment; NO_PLACE outside of the timeline, too."""
        if not len(self.start):
            return np.full(len(moment), NO_PLACE)
        stretch = np.searchsorted(self.start, moment, side="right") - 1
        inside = (stretch >= 0) & (moment < self.end[np.maximum(stretch, 0)])
        found: Array = np.where(inside, self.place[np.maximum(stretch, 0)], NO_PLACE)
        return found

    def cut(self, start: int, end: int) -> Timeline:
        """The part between two moments, which it covers without a hole."""
        first, last = np.searchsorted(self.end, start, side="right"), np.searchsorted(self.start, end, side="left")
        begin, until, place = self.start[first:last], self.end[first:last], self.place[first:last]
        if not len(begin):
            return Timeline(*(np.array([value], dtype=np.int64) for value in (start, end, NO_PLACE)))
        begin, until = np.maximum(begin, start), np.minimum(until, end)
        edges = [(start, int(begin[0])), (int(until[-1]), end)]
        holes = [np.array([edge], dtype=np.int64) for edge in edges]
        none = np.array([NO_PLACE])
        parts = [(holes[0][:, 0], holes[0][:, 1], none), (begin, until, place), (holes[1][:, 0], holes[1][:, 1], none)]
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        lasting = np.flatnonzero(joined[1] > joined[0])
        return Timeline(*(array[lasting] for array in joined))


def timeline(host: Host, thread: int) -> Timeline:
    """That of the thread of the steps; where it waits for another of the threads, what that one does."""
    around = host.parent_place
    own = _of_thread(host, around, thread)
    for other in np.unique(host.thread).tolist():
        if other != thread:
            own = _delegated(own, _of_thread(host, around, other), (host.thread == thread) & ~host.waits)
    return own


def _of_thread(host: Host, around: Array, thread: int) -> Timeline:
    """The innermost calls of one thread, with stretches between its calls. `around`: places of the calls around."""
    mine = np.flatnonzero(host.thread == thread)
    start, end = host.start[mine], host.end[mine]
    begins = _outer_first(start, end)
    # Of the calls that end at one moment the inner ones come first: those which began last.
    backwards = np.arange(len(mine))[::-1]
    ends = backwards[np.argsort(end[backwards], kind="stable")]
    # Two runs in order, which a stable sort merges; at one moment ends come before begins.
    moments = np.concatenate([end[ends], start[begins]])
    order = np.argsort(moments, kind="stable")
    moments, innermost = moments[order], np.concatenate([around[mine][ends], mine[begins]])[order]
    apart = np.flatnonzero(np.diff(moments) > 0)
    return Timeline(moments[apart], moments[apart + 1], innermost[apart])


def _outer_first(start: Array, end: Array) -> Array:
    """Places of calls, given in start order: of those that begin at one moment the longest is the outer one."""
    places = np.arange(len(start))
    same = np.flatnonzero(np.diff(start) == 0)
    tied = np.union1d(same, same + 1)
    places[tied] = tied[np.lexsort((tied, -end[tied], start[tied]))]
    return places


def _delegated(own: Timeline, other: Timeline, may_delegate: Array) -> Timeline:
    """Long stretches in a call that is no wait for a device are the other's where that one is busy for most of them."""
    in_call = own.place != NO_PLACE
    in_call[in_call] = may_delegate[own.place[in_call]]
    lasting = own.end - own.start
    called = np.flatnonzero(other.place != NO_PLACE)
    busy = Spans.union(other.start[called], other.end[called]).within(own.start, own.end)
    given = np.flatnonzero(in_call & (lasting >= DELEGATED_NS) & (2 * busy >= lasting))
    if not len(given):
        return own
    kept = np.setdiff1d(np.arange(len(own.start)), given)
    parts = [(own.start[kept], own.end[kept], own.place[kept])]
    for stretch in given.tolist():
        theirs = other.cut(int(own.start[stretch]), int(own.end[stretch]))
        place = np.where(theirs.place == NO_PLACE, own.place[stretch], theirs.place)
        parts.append((theirs.start, theirs.end, place))
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return Timeline(*(array[order] for array in joined))
