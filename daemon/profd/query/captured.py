"""The traces of a capture as one thing to ask: looked at side by side, a bounded number of events at a time.

Nothing is read at once but what each trace says of itself, and of that only what is needed to tell them apart.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from profd.errors import BadInput, ProfdError
from profd.limits import CAPTURE_THREADS_MAX, QUERY_ROWS_MAX
from profd.segments.meta import TraceMeta, read_meta
from profd.segments.place import Absent, place_of
from profd.segments.reader import TraceReader
from profd.segments.rollups import NONE, NeedsEvents, Rollups

Found = TypeVar("Found")
NOTHING_ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Member:
    """One trace of a capture."""

    directory: Path | None  # None: only what was kept of it is at hand
    trace: str
    rank: int | None  # None: its process has none; several traces may have the same, a process's and its children's
    host: str | None
    events: int
    start_ns: int | None
    end_ns: int | None
    source: str = ""
    rollups: Rollups = NONE
    asked: range | None = None  # steps that it was to begin at and to have, as its program numbers them

    @property
    def origin(self) -> dict[str, Any]:
        """The columns that say which trace a row is of."""
        return {"rank": self.rank, "host": self.host, "trace": self.trace}

    def open(self) -> TraceReader:
        """Its reader. NeedsEvents where its files are not at hand."""
        if self.directory is None:
            raise NeedsEvents(self.trace)
        return TraceReader(self.directory, self.rollups)


def opened(source: TraceReader | Member) -> TraceReader:
    """The reader of a trace, which a member of a capture has only once events are needed."""
    return source.open() if isinstance(source, Member) else source


class Captured:
    """The traces of one capture that may be read, by rank, those without one last; host and id decide among equals."""

    def __init__(
        self, directories: Sequence[Path], rollups: Sequence[Rollups] = (), absent: Absent = NOTHING_ABSENT
    ) -> None:
        """Reads what each says of itself. NotFound for one that was removed, BadTrace for a damaged one.

        `rollups`: those of each. `absent`: what the capture was to have beside them.
        """
        self.capture = ""
        self._absent = absent
        self.members: list[Member] = []
        known = rollups or [NONE] * len(directories)
        self._hold((one, read_meta(one), own) for one, own in zip(directories, known, strict=True))

    @classmethod
    def of_kept(cls, traces: Iterable[tuple[TraceMeta, Rollups]]) -> Self:
        """One of which only this is at hand: what each trace says of itself, and its rollups."""
        self = cls(())
        self._hold((None, meta, own) for meta, own in traces)
        return self

    def _hold(self, traces: Iterable[tuple[Path | None, TraceMeta, Rollups]]) -> None:
        for directory, meta, rollups in traces:
            capture, host = (directory and place_of(directory)) or (meta.capture, meta.host or None)
            self.capture = self.capture or capture
            edges = (meta.events, meta.start_ns, meta.end_ns)
            own = rollups.of(meta.trace, meta.events)
            asked = _asked_steps(meta)
            self.members.append(Member(directory, meta.trace, meta.rank, host, *edges, meta.source, own, asked))
        self.members.sort(key=lambda one: (one.rank is None, one.rank or 0, one.host or "", one.trace))

    @property
    def start_ns(self) -> int:
        """Of the first event of all."""
        return min((one.start_ns for one in self.members if one.start_ns is not None), default=0)

    @property
    def end_ns(self) -> int:
        """Of the last event of all."""
        return max((one.end_ns for one in self.members if one.end_ns is not None), default=0)

    def described(self) -> dict[str, Any]:
        """The keys that every answer about a capture begins with."""
        ranks = Counter(one.rank for one in self.members if one.rank is not None)
        return {
            "capture": self.capture,
            "traces": [{**one.origin, "events": one.events} for one in self.members],
            "missing_ranks": _gaps(sorted(ranks), self._absent.ranks),
            "missing_hosts": list(self._absent.hosts),
            "unread": list(self._absent.unread),
            "shared_ranks": sorted(rank for rank, count in ranks.items() if count > 1),
        }

    def each(
        self,
        look: Callable[[Member], Found],
        most: int = QUERY_ROWS_MAX,
        kept: Callable[[Member], Found | None] = lambda member: None,
    ) -> Iterator[tuple[Member, Found]]:
        """What `look` finds in each trace, in order; several are looked at side by side.

        Traces that are looked at, or whose findings wait, have `most` events together, or are one. What `look` raises
        is raised, and names the trace. What was `kept` of one is read here and now: that is too short for a thread.
        """
        threads = min(CAPTURE_THREADS_MAX, len(os.sched_getaffinity(0)), len(self.members))
        pool = ThreadPoolExecutor(max(threads, 1), "trace")
        waiting: deque[tuple[Member, int, Callable[[], Found]]] = deque()
        events = 0
        try:
            for member in self.members:
                known = kept(member)
                own = member.events if known is None else 0
                while waiting and (len(waiting) > threads or events + own > most):
                    first, its, found = waiting.popleft()
                    yield first, found()
                    events -= its
                looking = pool.submit(_looked, look, member).result if known is None else partial(_same, known)
                waiting.append((member, own, looking))
                events += own
            while waiting:
                first, _, found = waiting.popleft()
                yield first, found()
        finally:
            pool.shutdown(cancel_futures=True)


def _same(found: Found) -> Found:
    return found


def _looked(look: Callable[[Member], Found], member: Member) -> Found:
    with named_in_errors(member):
        return look(member)


@contextmanager
def named_in_errors(member: Member) -> Iterator[None]:
    """Errors name the trace that they are about."""
    try:
        yield
    except ProfdError as error:
        if member.trace in str(error):
            raise
        rank = "" if member.rank is None else f" of rank {member.rank}"
        raise type(error)(f"trace {member.trace}{rank}: {error}") from error


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A trace that has not what was asked for, and why."""

    member: Member
    why: str

    def as_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {**self.member.origin, "why": self.why}


def where_there_is(look: Callable[[Member], Found]) -> Callable[[Member], Found | LeftOut]:
    """`look`, but for traces that have no such step or thread: they are named, and the others answer."""

    def looked(member: Member) -> Found | LeftOut:
        try:
            return look(member)
        except ProfdError as error:
            if type(error) is not BadInput:
                raise
            return LeftOut(member, str(error))

    return looked


def traces_of_trace(trace: TraceReader) -> dict[str, Any]:
    """As of a capture that has this one trace."""
    return Captured([trace.directory]).described()


def traces_of_capture(capture: Captured) -> dict[str, Any]:
    """Which traces answer, and of which ranks there are none or several."""
    return capture.described()


def _asked_steps(meta: TraceMeta) -> range | None:
    first, count = meta.options.get("begin_step"), meta.options.get("iterations")
    return range(first, first + count) if type(first) is int and type(count) is int else None


def _gaps(ranks: list[int], count: int) -> list[list[int]]:
    """The ranks from 0 on that are not there, as [first, last]; behind the last one as far as `count` is known."""
    edges = [-1, *ranks, max(count, max(ranks, default=-1) + 1)]
    return [[before + 1, after - 1] for before, after in pairwise(edges) if after - before > 1]
