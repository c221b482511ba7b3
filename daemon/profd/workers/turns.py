"""The order in which users get a free worker: captures first, and users by turns.

The data of a capture waits for no question. One user's captures leave a worker to captures of others; so do one user's
questions and imports. Jobs that last as long as a client reads, or as a file is large, leave one worker all together.
Beside all that a user may have one glance: a job of some ms, for which a person waits.
A user who has all other workers does not get the last one while others wait, captures and questions added up. Where
others have all workers, and a user without one has waited for some time, the pool makes a place more (`grow`): no
honest long job ends for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from profd.errors import Unavailable
from profd.fairness.shares import Holder

Place = TypeVar("Place")


class JobKind(Enum):
    """The kinds of jobs."""

    CAPTURE = auto()
    QUESTION = auto()
    GLANCE = auto()  # a question that takes some ms: nothing that lasts holds it up
    LONG = auto()  # an answer that is streamed, or an import
    PUSHED = auto()  # the same, of what was streamed to us: it is on disk, and storing it is never refused


NOBODY: Final = -1
LASTING: Final = (JobKind.LONG, JobKind.PUSHED)


@dataclass(frozen=True, slots=True)
class Turn:
    """A user, and the kind of the user's job."""

    holder: Holder
    kind: JobKind


OURS: Final = Turn(Holder(0, reserved=True), JobKind.CAPTURE)
_Waiting = OrderedDict[int, "deque[tuple[Turn, asyncio.Future[Place]]]"]  # by uid; whose turn is next, first


class Turns(Generic[Place]):
    """The free places of a pool, and the queue for them. On the event loop's thread."""

    def __init__(self, size: int) -> None:
        self._most = max(1, size - 1)
        self._free: deque[tuple[Place, int]] = deque()  # and who had it last
        self._captures: _Waiting[Place] = OrderedDict()
        self._others: _Waiting[Place] = OrderedDict()
        self._running: Counter[int] = Counter()  # by uid, captures not counted
        self._storing: Counter[int] = Counter()  # by uid, captures
        self._glances: Counter[int] = Counter()  # by uid; they are among those that run, too
        self._long = 0
        self._grown = 0
        self._closed = False

    @property
    def free(self) -> int:
        """The number of free places."""
        return len(self._free)

    @property
    def waiting(self) -> int:
        """The number of jobs that wait."""
        return sum(map(len, (*self._captures.values(), *self._others.values())))

    def crowded(self, uid: int) -> bool:
        """Whether another user waits."""
        if any(other != uid for other in self._others):
            return True
        # A capture that waits for its own user's has no use for another place.
        return any(other != uid and self._may_store(waiting[0][0]) for other, waiting in self._captures.items())

    @property
    def grown(self) -> int:
        """Places beyond the size."""
        return self._grown

    def starves(self, uid: int) -> bool:
        """Whether a user waits and has no place at all."""
        has = self._running[uid] + self._storing[uid]
        return not has and (uid in self._captures or uid in self._others)

    def grow(self, place: Place) -> None:
        """Add a place. A job that lasts may have it, whosever turn it is; the share of a user does not grow."""
        self._grown += 1
        self.put(place)

    def shrink(self) -> tuple[Place] | None:
        """Take an added place back where no job wants it now; None where one does."""
        # A user who waits while a place is free may not have it.
        if not (self._grown and self._free) or self._long >= self._most + self._grown:
            return None
        self._grown -= 1
        return (self._free.pop()[0],)

    async def get(self, turn: Turn) -> Place:
        """Wait for a place; `done` and `put` give it back. Raises Unavailable."""
        self.check_open()
        queue = self._captures if turn.kind is JobKind.CAPTURE else self._others
        waiter: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        queue.setdefault(turn.holder.uid, deque()).append((turn, waiter))
        self._hand_out()
        try:
            return await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.done(turn)
                self.put(waiter.result())
            elif not self._closed:
                _leave(queue, turn, waiter)
            raise

    def done(self, turn: Turn) -> None:
        """A job has ended; its place may come back later."""
        self._count(turn, -1)
        self._hand_out()

    def put(self, place: Place, uid: int = NOBODY) -> None:
        """A place is free. This user has it next before others: theirs are warm, when it had to be made anew."""
        self._free.append((place, uid))
        self._hand_out()

    def remove(self, place: Place) -> bool:
        """Take a place away if it is free; whether it was."""
        found = next((entry for entry in self._free if entry[0] is place), None)
        if found is not None:
            self._free.remove(found)
        return found is not None

    def close(self) -> None:
        """End all waits."""
        self._closed = True
        for queue in (self._captures, self._others):
            for _, waiter in [entry for entries in queue.values() for entry in entries]:
                if not waiter.done():
                    waiter.set_exception(_closed())
            queue.clear()

    def check_open(self) -> None:
        """Raise Unavailable once it is closed."""
        if self._closed:
            raise _closed()

    def _hand_out(self) -> None:
        while self._free and not self._closed:
            entry = self._next_modest() or _next(self._captures, self._may_store) or _next(self._others, self._may)
            if entry is None:
                return
            turn, waiter = entry
            self._count(turn, 1)
            waiter.set_result(self._free_for(turn.holder.uid))

    def _free_for(self, uid: int) -> Place:
        """The place that this user had last, or else the one that is free for the longest time."""
        own = next((number for number, (_, last) in enumerate(self._free) if last == uid), 0)
        place, _ = self._free[own]
        del self._free[own]
        return place

    def _next_modest(self) -> tuple[Turn, asyncio.Future[Place]] | None:
        """The next job of a user who would not have all places by it."""

        def modest(turn: Turn) -> bool:
            uid = turn.holder.uid
            return turn.holder.reserved or self._running[uid] + self._storing[uid] < self._most

        return _next(self._captures, lambda turn: modest(turn) and self._may_store(turn)) or _next(
            self._others, lambda turn: modest(turn) and self._may(turn)
        )

    def _may_store(self, turn: Turn) -> bool:
        """Whether a user may have all places: root, and the user of this daemon, may."""
        return turn.holder.reserved or self._storing[turn.holder.uid] < self._most

    def _may(self, turn: Turn) -> bool:
        if turn.kind in LASTING and self._long >= self._most + self._grown:
            return False
        if turn.kind is JobKind.GLANCE and not self._glances[turn.holder.uid]:
            return True
        return self._running[turn.holder.uid] < self._most

    def _count(self, turn: Turn, by: int) -> None:
        counted = self._storing if turn.kind is JobKind.CAPTURE else self._running
        counted[turn.holder.uid] += by
        if not counted[turn.holder.uid]:
            del counted[turn.holder.uid]
        if turn.kind is JobKind.GLANCE:
            self._glances[turn.holder.uid] += by
            if not self._glances[turn.holder.uid]:
                del self._glances[turn.holder.uid]
        if turn.kind in LASTING:
            self._long += by


def _next(queue: _Waiting[Place], may: Callable[[Turn], bool]) -> tuple[Turn, asyncio.Future[Place]] | None:
    """Take the first job that may run from the user whose turn it is; that user's next turn comes after all others'."""
    for uid, entries in queue.items():
        for turn, waiter in entries:
            if not waiter.done() and may(turn):
                _leave(queue, turn, waiter)
                if uid in queue:
                    queue.move_to_end(uid)
                return turn, waiter
    return None


def _leave(queue: _Waiting[Place], turn: Turn, waiter: asyncio.Future[Place]) -> None:
    entries = queue[turn.holder.uid]
    entries.remove((turn, waiter))
    if not entries:
        del queue[turn.holder.uid]


def _closed() -> Unavailable:
    return Unavailable("profd is shutting down; ask again when it is back")
