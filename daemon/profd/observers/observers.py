"""Which processes want an observer, and the builds that are made for them, two at a time.

A build is made once for each torch and user, when a capture or its estimate meets a process without one. A failure is
told, and not tried again while the daemon lives; the builder, which works as the user, remembers it for longer
(profclient.torch.notes).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from threading import Thread
from typing import Final

from profd.limits import (
    OBSERVER_BUILDS_AT_ONCE,
    OBSERVER_BUILDS_MAX,
    OBSERVER_MEMORY_BYTES_MIN,
    OBSERVER_QUIET_SECONDS,
    GiB,
)
from profd.model.newest import Newest
from profd.model.shortfall import OBSERVER_COMES
from profd.observers import torch_of
from profd.observers.builder import Built, build
from profd.observers.torch_of import Elsewhere, Wanted
from profd.targets.memory import MemoryLimits
from profd.targets.process import Process, ProcessId

BY_HAND: Final = "build it once for this torch: profctl torch build"
_BY_ROOT: Final = (
    "the daemon builds none for root, as whom no compiler is to run by itself; build it once for this torch: "
    "profctl torch build"
)
_LOOK_SECONDS: Final = 2.0  # at files of a target, which may lie on a disk that does not answer
_ANOTHER: Final = (
    "one has been built that the process does not load: its profclient is of another version than the daemon's, so "
    "build it with that one: profctl torch build"
)

log = logging.getLogger("profd.observers")


class BuildState(Enum):
    """Of a build; the values are words for people."""

    WAITING = "waiting"
    BUILDING = "being built"
    BUILT = "built"
    FAILED = "failed"
    DECLINED = "put off"  # for a reason that passes: the next capture asks again


@dataclass(slots=True)
class _Order:
    """A build that was asked for."""

    state: BuildState
    why: str = ""
    directory: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of a process."""

    wanted: Wanted | None
    why_not: str = ""
    usable: bool = False
    refused: bool = False  # by the process, though it is there


class Observers:
    """All builds of one daemon."""

    def __init__(self, *, enabled: bool, change_identity: bool, proc: Path = Path("/proc")) -> None:
        """`change_identity`: the daemon is root, and builds as the owner of the process."""
        self.enabled = enabled
        self._change_identity = change_identity
        self._proc = proc
        self._seen = Newest[ProcessId, _Seen](OBSERVER_BUILDS_MAX)
        self._orders = Newest[Wanted, _Order](OBSERVER_BUILDS_MAX)
        self._quiet = Newest[int, float](OBSERVER_BUILDS_MAX)  # by uid, until when
        self._looking: Future[None] | None = None
        self._queue: asyncio.Queue[Wanted] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    async def close(self) -> None:
        """End the builds that run; they are begun anew when they are asked for again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def look(self, processes: Sequence[Process]) -> None:
        """Find out what torch they have; bounded, and nothing while an earlier look waits for a disk."""
        while self._looking is not None and not self._looking.done():
            done, _ = await asyncio.wait({asyncio.wrap_future(self._looking)}, timeout=_LOOK_SECONDS)
            if not done:
                return
        self._looking = Future()
        # Not of the loop's executor, whose threads everything shares; and the daemon's end does not wait for it.
        Thread(
            target=_told_to, args=(self._looking, self._look, list(processes)), name="observers", daemon=True
        ).start()
        await asyncio.wait({asyncio.wrap_future(self._looking)}, timeout=_LOOK_SECONDS)

    def usable(self, process: Process) -> bool:
        """One has been built since it told what it can."""
        seen = self._seen.get(process.id)
        return seen is not None and seen.usable and not seen.refused

    def not_loaded(self, process: Process) -> None:
        """There is one, and the process says that there is none."""
        if (seen := self._seen.get(process.id)) is not None:
            self._seen[process.id] = replace(seen, refused=True)

    def fix(self, process: Process) -> str:
        """What brings one, to continue "there is no observer; ". Has it built, where it can be."""
        seen = self._seen.get(process.id)
        if seen is None or not self.enabled:
            return BY_HAND
        if seen.refused:
            return _ANOTHER
        if seen.wanted is None:
            return seen.why_not
        if self._change_identity and seen.wanted.uid == 0:
            return _BY_ROOT
        return _told(self._order(seen.wanted))

    def counts(self) -> Counter[str]:
        """Builds by their state, in words."""
        return Counter(order.state.value for order in self._orders.values())

    def _look(self, processes: list[Process]) -> None:
        """In a thread: reads files of the processes."""
        for process in processes:
            seen = self._seen.get(process.id)
            if seen is None or seen.wanted is None:
                seen = self._first_look(process)
            order = self._orders.get(_of_all(seen.wanted)) if seen.wanted else None
            if order is not None and order.directory:
                # Also one that somebody has built by hand since.
                there = torch_of.lies_at(os.path.join(order.directory, "build.json"), process, self._proc)
                seen = replace(seen, usable=there)
                if there:
                    order.state, order.why = BuildState.BUILT, ""
            self._seen[process.id] = seen

    def _first_look(self, process: Process) -> _Seen:
        try:
            return _Seen(torch_of.look(process, self._proc))
        except Elsewhere as error:
            return _Seen(None, str(error))

    def _order(self, wanted: Wanted) -> _Order:
        """The build for it, which is begun if there is none."""
        key = _of_all(wanted)
        order = self._orders.get(key)
        if order is None or order.state is BuildState.DECLINED:
            order = self._put_off(wanted.uid)
            if order is not None:
                return order
            order = _Order(BuildState.WAITING)
            self._orders[key] = order
            self._queue.put_nowait(wanted)
            if len(self._tasks) < OBSERVER_BUILDS_AT_ONCE:
                self._tasks.append(asyncio.get_running_loop().create_task(self._work(), name="observers"))
        return order

    def _put_off(self, uid: int) -> _Order | None:
        """A user has one in the queue, so that they take turns, and none for a while after one that took too long."""
        if any(
            of.uid == uid and order.state in (BuildState.WAITING, BuildState.BUILDING)
            for of, order in self._orders.items()
        ):
            return _Order(BuildState.DECLINED, "another one of its user's is being built")
        if time.monotonic() < self._quiet.get(uid, 0.0):
            return _Order(BuildState.DECLINED, "an earlier one of its user's took too long, less than an hour ago")
        return None

    async def _work(self) -> None:
        """One after the other; `_put_off` sees to it that those at once are of different users."""
        while True:
            wanted = await self._queue.get()
            order = self._orders.get(_of_all(wanted))
            if order is None:
                continue
            try:
                await self._build(wanted, order)
            except Exception:  # the next one is built all the same
                log.exception("an observer was not built")
                order.state, order.why = BuildState.FAILED, "the daemon's log says why"

    async def _build(self, wanted: Wanted, order: _Order) -> None:
        free = await asyncio.to_thread(free_bytes, self._proc)
        if free < OBSERVER_MEMORY_BYTES_MIN:
            order.state = BuildState.DECLINED
            order.why = f"building it takes {OBSERVER_MEMORY_BYTES_MIN / GiB:g} GiB and {free / GiB:.1f} are free"
            return
        order.state = BuildState.BUILDING
        other = self._change_identity and wanted.uid != os.geteuid()
        found: Built = await build(wanted, change_identity=other, awaited=lambda: not self._queue.empty())
        order.directory, order.why = found.directory, found.why
        order.state = BuildState.BUILT
        if found.why:
            order.state = BuildState.DECLINED if found.again else BuildState.FAILED
        if found.too_long:
            self._quiet[wanted.uid] = time.monotonic() + OBSERVER_QUIET_SECONDS
        log.info("an observer of PyTorch", extra={"state": order.state.value, "torch": wanted.torch, "why": found.why})


def _told_to(future: Future[None], look: Callable[[list[Process]], None], processes: list[Process]) -> None:
    """In a thread of its own. Done in any case: what was not found out is asked for again."""
    try:
        look(processes)
    except Exception:  # the next look is another one
        log.exception("processes were not looked at")
    finally:
        future.set_result(None)


def free_bytes(proc: Path = Path("/proc")) -> int:
    """Memory that a build could have, which is in the daemon's own cgroup: of the host and of that."""
    return MemoryLimits(proc).left(os.getpid()) or 0


def _told(order: _Order) -> str:
    if order.state is BuildState.FAILED:
        return f"it could not be built: {order.why} (profctl torch build tries again)"
    if order.state is BuildState.DECLINED:
        return f"it was not built, because {order.why}: the next capture asks again, or profctl torch build"
    return OBSERVER_COMES


def _of_all(wanted: Wanted) -> Wanted:
    """The same for all processes that it is for."""
    return replace(wanted, gid=0, pid=0, start_ticks=0, mounts="")
