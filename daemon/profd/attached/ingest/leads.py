"""How much memory is allocated in arenas on this side, ahead of their targets.

The kernel charges a page to the cgroup of whoever touches it first, and a job's cgroup may be tight: so the streamer
touches the pages that the target will want next, and the daemon says how many (docs/arena.md). Leads are taken from one
pool; a target that gets none pays for its own arena, as without a streamer. Nothing here takes the lock of an arena's
inode, which its target can hold for as long as it likes: a process of the errands does, and is given up.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

from profd.attached.ingest.arena import chunks_untrusted
from profd.kernel.freeing import let_go
from profd.limits import LEAD_BYTES, LEADS_BYTES_MAX, LEADS_BYTES_PER_UID_MAX
from profd.targets.errands import memory
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import Errands, errands

_FIRST_SHARE: Final = 16  # of what is left; a first lead takes no more, so that many processes have one
_OWN_SHARE: Final = 4  # of what the daemon's own cgroup has left
_LOOK_AGAIN_SECONDS: Final = 1.0
_CHUNK_BYTES: Final = 64 * 1024

Room = Callable[[], int | None]
"""Bytes that this process and its children may still take; None: not known."""

log = logging.getLogger("profd.ingest")


class Lead:
    """The memory that may be allocated in one arena."""

    def __init__(self, leads: Leads, uid: int, arena_bytes: int, granted: int) -> None:
        self.bytes = granted  # in all, from its begin
        self.first: asyncio.Task[None] | None = None  # allocates the first of it
        self._leads = leads
        self._uid = uid
        self._arena_bytes = arena_bytes

    def grow(self) -> bool:
        """Twice as much, or what there is; whether it is more than before."""
        more = self._leads.take(self._uid, min(self.bytes or _CHUNK_BYTES, self._arena_bytes - self.bytes))
        self.bytes += more
        return more > 0

    def end(self, fd: int) -> None:
        """Nothing is wanted of the arena any more: its memory is freed, and then others may have as much.

        Pages that a target keeps mapped would stay allocated, on the daemon's account. `fd` stays the caller's. Safe to
        repeat.
        """
        self._leads.free(self._uid, fd, self.bytes, self.first)
        self.bytes = 0

    def abandon(self) -> None:
        """The target may write on, so nothing is freed: what was allowed stays taken from the pool."""
        self.bytes = 0


class Leads:
    """The pool. Of one event loop."""

    def __init__(self, room: Room = lambda: None, office: Errands = errands) -> None:
        """`room`: of the daemon; its share bounds the pool, too. `office`: whose processes allocate and free."""
        self._room = room
        self._office = office
        self._roomy = (0.0, LEADS_BYTES_MAX)  # good until, and a bound
        self._taken: defaultdict[int, int] = defaultdict(int)  # by uid
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def taken(self) -> int:
        """Bytes that are allowed now, in all."""
        return sum(self._taken.values())

    def begin(self, uid: int, fd: int) -> Lead:
        """The lead of an arena, and its first memory, allocated soon. `fd` stays the caller's."""
        try:
            arena_bytes = os.fstat(fd).st_size
        except OSError:
            arena_bytes = 0
        lead = Lead(
            self, uid, arena_bytes, self.take(uid, min(LEAD_BYTES, self._left(uid) // _FIRST_SHARE, arena_bytes))
        )
        if lead.bytes:
            # The streamer does the same, but it takes a tenth of a second to start. Half: it has to place strings, too.
            lead.first = self._soon(fd, lambda ours: self._allocate(uid, ours, lead.bytes // 2))
        return lead

    def free(self, uid: int, fd: int, count: int, behind: asyncio.Task[None] | None) -> None:
        """Free what an arena holds, `behind` what allocates in it, and give so much back to the pool once that is done.

        `fd` stays the caller's.
        """
        if count:
            self._soon(fd, lambda ours: self._free(uid, ours, count, behind))

    async def done(self) -> None:
        """When everything has been allocated and freed that was to be by now, or was given up."""
        await asyncio.gather(*self._tasks)

    def _soon(self, fd: int, what: Callable[[int], Awaitable[None]]) -> asyncio.Task[None] | None:
        """With a descriptor of its own, when nobody waits for it."""
        try:
            ours = os.dup(fd)
        except OSError:  # no descriptor is left: what is taken stays taken
            return None
        task = asyncio.get_running_loop().create_task(_with(ours, what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: let_go(ours))  # also of one that was cancelled before it ran
        return task

    async def _allocate(self, uid: int, fd: int, count: int) -> None:
        """The first chunks."""
        try:
            where = chunks_untrusted(fd)
            if where is not None:
                begin, end = where
                # Within the file's size, so whatever the target has sealed or written it is this many bytes at most.
                await memory.allocate(uid, fd, begin, min(count, end - begin), self._office)
        except (OSError, NoAnswer) as error:  # no memory: the target takes its own
            log.info("no memory was allocated ahead of a target", extra={"why": str(error)})

    async def _free(self, uid: int, fd: int, count: int, behind: asyncio.Task[None] | None) -> None:
        """All memory of an arena but its header; what could not be freed stays taken."""
        if behind is not None:
            await asyncio.wait([behind])
        try:
            await memory.free(uid, fd, mmap.PAGESIZE, self._office)
            self.put_back(uid, count)
        except (OSError, NoAnswer) as error:
            log.warning("memory of an arena could not be freed", extra={"uid": uid, "why": str(error)})

    def take(self, uid: int, wanted: int) -> int:
        """Whole chunks of the pool: as many as there are of what is wanted."""
        given = max(0, min(wanted, self._left(uid))) // _CHUNK_BYTES * _CHUNK_BYTES
        if given:
            self._taken[uid] += given
        return given

    def put_back(self, uid: int, count: int) -> None:
        """Give them back."""
        self._taken[uid] -= count
        if not self._taken[uid]:
            del self._taken[uid]

    def close(self) -> None:
        """Wait for nothing more."""
        for task in self._tasks:
            task.cancel()

    def _left(self, uid: int) -> int:
        return min(self._bound() - self.taken, LEADS_BYTES_PER_UID_MAX - self._taken.get(uid, 0))

    def _bound(self) -> int:
        until, bound = self._roomy
        if time.monotonic() >= until:
            room = self._room()
            # What is taken may be allocated already, so it is no longer in the room.
            bound = LEADS_BYTES_MAX if room is None else min(LEADS_BYTES_MAX, self.taken + room // _OWN_SHARE)
            self._roomy = (time.monotonic() + _LOOK_AGAIN_SECONDS, bound)
        return bound


async def _with(fd: int, what: Callable[[int], Awaitable[None]]) -> None:
    await what(fd)
