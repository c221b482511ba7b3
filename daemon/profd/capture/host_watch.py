"""Processes and captures as they change, worked out once for all watches of a user.

Nothing is done while nobody watches. A watch holds what it has told, and tells the difference to what there is now: a
slow one misses steps in between, and nothing waits for it. On the event loop; only /proc is read in threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from profd import limits
from profd.capture.manager import CaptureManager
from profd.capture.planner import Sighting
from profd.capture.records import CaptureRecord
from profd.errors import ProfdError, Unavailable
from profd.fairness.few import Few
from profd.fairness.shares import Holder, Share, Shares
from profd.targets.selector import Selector
from profd.trust.caller import Caller

log = logging.getLogger("profd.capture")

Key = TypeVar("Key")

_WATCHES: Final = Share(
    *("live", "watches of the host", limits.LIVE_PER_UID_MAX, limits.LIVE_MAX, limits.LIVE_RESERVED), retry_seconds=5
)


@dataclass(frozen=True, slots=True)
class Rows:
    """How a process and a capture are told: texts that differ where what is told does."""

    process: Callable[[Sighting], str]
    capture: Callable[[CaptureRecord], str]


@dataclass(frozen=True, slots=True)
class Moment:
    """All that there is, or what has changed since the last moment. Rows have their order from whoever reads them."""

    whole: bool = False
    processes: Mapping[int, str] = field(default_factory=dict)  # by pid: new ones, and changed ones
    gone: tuple[int, ...] = ()  # pids
    left_out: int = 0  # processes beyond the limit, as of now
    captures: Mapping[str, str] = field(default_factory=dict)  # by id, newest first where it is whole
    captures_gone: tuple[str, ...] = ()


class HostWatch:
    """All watches of a daemon."""

    def __init__(self, manager: CaptureManager, rows: Rows) -> None:
        self._manager = manager
        self._rows = rows
        self._shares = Shares(_WATCHES)
        self._feeds: dict[tuple[int, bool, int], _Feed] = {}
        self._looking = Few(1, limits.LIVE_LOOKS_AT_ONCE)

    @property
    def watched(self) -> int:
        """Users, and admins, for whom something is worked out."""
        return len(self._feeds)

    async def follow(self, caller: Caller) -> AsyncGenerator[Moment, None]:
        """All that the caller may see, then what changes, until it is closed; a moment without changes is a beat.

        Raises Exhausted for a watch too many, and where processes cannot be seen any more.
        """
        with self._shares.take(Holder.of(caller)):
            async with self._joined(caller) as (feed, changed):
                told = _ToldRows(caller.pid)
                await feed.known()
                yield told.whole(feed)
                while True:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(limits.LIVE_BEAT_SECONDS):
                            await changed.wait()
                    changed.clear()
                    feed.check()
                    yield told.since(feed)

    @asynccontextmanager
    async def _joined(self, caller: Caller) -> AsyncGenerator[tuple[_Feed, asyncio.Event], None]:
        key, changed = (caller.uid, caller.admin, caller.container), asyncio.Event()
        feed = self._feeds.get(key)
        if feed is None:
            # Not of one client: the process that asks is left out by each watch itself.
            feed = self._feeds[key] = _Feed(self, replace(caller, pid=0))
        feed.watches.add(changed)
        try:
            yield feed, changed
        finally:
            feed.watches.discard(changed)
            if not feed.watches:  # whoever comes back at once, again and again, costs no look each time
                asyncio.get_running_loop().call_later(limits.LIVE_KEPT_SECONDS, self._end, key, feed)

    def _end(self, key: tuple[int, bool, int], feed: _Feed) -> None:
        """Unless somebody watches again."""
        if not feed.watches and self._feeds.get(key) is feed:
            del self._feeds[key]
            feed.end()

    async def look(self, caller: Caller) -> tuple[dict[int, str], int]:
        """The rows of processes by pid, and how many more there are. Raises Exhausted."""
        async with self._looking.of(caller.uid):
            seen = await self._manager.planner.targets(caller, Selector())
        first = sorted(seen, key=lambda one: (not one.held, one.launcher, one.process.id.pid))
        some = first[: limits.LIVE_PROCESSES_MAX]
        return {one.process.id.pid: self._rows.process(one) for one in some}, len(seen) - len(some)

    def captures(self, caller: Caller, known: Mapping[str, str]) -> dict[str, str]:
        """The rows of captures by id; those that are `known` have not changed."""
        records = self._manager.current(caller, limits.LIVE_ENDED)
        return {record.id: known.get(record.id) or self._rows.capture(record) for record in records}

    def listen(self, changed: Callable[[CaptureRecord], None]) -> Callable[[], None]:
        """Have this called for each capture that changes; the answer ends that."""
        self._manager.on_changed.add(changed)
        return lambda: self._manager.on_changed.discard(changed)

    def look_pause(self, took: float) -> float:
        """Seconds from a look that took so long to the next."""
        alone = min(took / limits.LIVE_LOOK_CORES, limits.LIVE_LOOK_SECONDS_MAX)
        return max(limits.LIVE_LOOK_SECONDS, alone * len(self._feeds))


class _Feed:
    """What a user may see now, kept up to date until `end`."""

    def __init__(self, host: HostWatch, caller: Caller) -> None:
        self.processes: dict[int, str] = {}
        self.left_out = 0
        self.captures: dict[str, str] = {}
        self.watches: set[asyncio.Event] = set()
        self._host = host
        self._caller = caller
        self._failure: ProfdError | None = None
        self._known = asyncio.Event()
        self._stale = asyncio.Event()
        self._stale.set()
        self._changed: set[str] = set()  # captures
        self._mute = host.listen(self._hear)
        loop = asyncio.get_running_loop()
        works = (self._look_on(), self._follow_captures())
        self._tasks = [loop.create_task(self._until_failure(work)) for work in works]

    async def known(self) -> None:
        """Until there is something to tell. Raises what `check` raises."""
        await self._known.wait()
        self.check()

    def check(self) -> None:
        """Raises ProfdError where nothing more will come."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Nobody watches any more."""
        self._mute()
        for task in self._tasks:
            task.cancel()

    def _hear(self, record: CaptureRecord) -> None:
        if self._caller.admin or record.owner_uid == self._caller.uid:
            self._changed.add(record.id)
            self._stale.set()

    def _tell(self) -> None:
        for changed in self.watches:
            changed.set()

    async def _until_failure(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ProfdError as error:
            self._failure = error
        except Exception:
            log.exception("watching the host failed")
            self._failure = Unavailable("profd cannot say any more what happens here; this is a fault of profd")
        self._known.set()
        self._tell()

    async def _look_on(self) -> None:
        while True:
            begun = time.monotonic()
            processes, left_out = await self._host.look(self._caller)
            if (processes, left_out) != (self.processes, self.left_out):
                self.processes, self.left_out = _kept(processes, self.processes), left_out
                self._tell()
            self._known.set()
            await asyncio.sleep(self._host.look_pause(time.monotonic() - begun))

    async def _follow_captures(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            begun = time.monotonic()
            known = {name: row for name, row in self.captures.items() if name not in self._changed}
            self._changed.clear()
            self.captures = _kept(self._host.captures(self._caller, known), self.captures)
            self._tell()
            took = time.monotonic() - begun
            await asyncio.sleep(max(limits.LIVE_SECONDS, took / limits.LIVE_CORES))


def _kept(now: Mapping[Key, str], before: Mapping[Key, str]) -> dict[Key, str]:
    """The rows of now; one that has not changed is the object that it was, as `_Told` compares them."""
    return {key: before[key] if before.get(key) == row else row for key, row in now.items()}


class _ToldRows:
    """What one watch has told. Rows are compared by whether they are the same object: there are hundreds."""

    def __init__(self, own_pid: int) -> None:
        """`own_pid`: of the process that watches, which is not told."""
        self._own_pid = own_pid
        self._processes: dict[int, str] = {}
        self._captures: dict[str, str] = {}

    def whole(self, feed: _Feed) -> Moment:
        """All that there is."""
        return replace(self.since(feed), whole=True)

    def since(self, feed: _Feed) -> Moment:
        """What is not as it was told."""
        processes = {pid: row for pid, row in feed.processes.items() if pid != self._own_pid}
        captures = dict(feed.captures)
        moment = Moment(
            processes={pid: row for pid, row in processes.items() if self._processes.get(pid) is not row},
            gone=tuple(self._processes.keys() - processes.keys()),
            left_out=feed.left_out,
            captures={name: row for name, row in captures.items() if self._captures.get(name) is not row},
            captures_gone=tuple(self._captures.keys() - captures.keys()),
        )
        self._processes, self._captures = processes, captures
        return moment
