"""Processes that were attached to the daemon before this one, and have not come back yet.

Agents look for a daemon after 1, 2, 4 s and so on, up to AGENT_TRY_AGAIN_SECONDS. Until then nothing else tells such a
process from one that never attached: it would be sampled without a word, or be in no job. So who is attached stands in
a file, with the labels that only its agent tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

import msgspec

from profd.disk.files import rename
from profd.limits import AGENT_TRY_AGAIN_SECONDS, AGENTS_MAX, AGENTS_RESERVED
from profd.targets.process import ProcessId

FILE: Final = "attached.json"
BACK_SECONDS: Final = AGENT_TRY_AGAIN_SECONDS + 5.0  # with the greeting; who is not back then is not awaited any more
WRITE_SECONDS: Final = 0.5  # from a change to the file: many processes attach at once
_MOST: Final = AGENTS_MAX + AGENTS_RESERVED
_BYTES_MAX: Final = _MOST * 4096  # two labels have up to 256 characters each, of up to four bytes

log = logging.getLogger("profd.agents")


class Known(msgspec.Struct, frozen=True, array_like=True):
    """An attached process, and what its agent said of it."""

    pid: int
    start_ticks: int
    rank: int | None = None
    job: str = ""
    pod: str = ""

    @property
    def process(self) -> ProcessId:
        """Whose these are."""
        return ProcessId(self.pid, self.start_ticks)


class Returning:
    """Which processes are awaited, and the file that tells the next daemon. Of the event loop, but for `of`."""

    def __init__(self, writing: Executor, clock: Callable[[], float] = time.monotonic) -> None:
        """`writing`: where the file is written."""
        self._writing, self._clock = writing, clock
        self._file: Path | None = None
        self._awaited: dict[ProcessId, Known] = {}
        self._until = 0.0
        self._came: dict[ProcessId, asyncio.Event] = {}  # of those that are waited for
        self._due: asyncio.TimerHandle | None = None
        self._written: asyncio.Future[None] | None = None
        self._attached: Callable[[], Iterable[Known]] = tuple

    async def open(
        self, file: Path, alive: Callable[[ProcessId], bool], attached: Callable[[], Iterable[Known]]
    ) -> None:
        """Await those of the file that live, from now on. `attached`: those of now."""
        found = await asyncio.to_thread(_read, file, alive)
        self._file, self._attached = file, attached
        self._awaited.update((known.process, known) for known in found)
        self._until = self._clock() + BACK_SECONDS
        if found:
            log.info("attached processes are awaited", extra={"count": len(found), "seconds": BACK_SECONDS})

    def of(self, process: ProcessId) -> Known | None:
        """What was known of one that is awaited; None of any other. Safe to call from any thread."""
        known = self._awaited.get(process)
        return known if known is not None and self._clock() < self._until else None

    def why(self, process: ProcessId) -> str:
        """A sentence about one that is awaited; empty of any other."""
        if self.of(process) is None:
            return ""
        left = max(1, math.ceil(self._until - self._clock()))
        return f"pid {process.pid} was attached to the profd before this one and comes back by itself, within {left} s"

    def came(self, process: ProcessId) -> None:
        """It has attached."""
        self._awaited.pop(process, None)
        if came := self._came.pop(process, None):
            came.set()
        self.changed()

    async def wait(self, processes: Collection[ProcessId], seconds: float) -> bool:
        """Until all of these that are awaited have come back, and no longer than this; False: none was awaited.

        Each in turn: one that comes wakes who waits for it, and not all whose others are to come.
        """
        awaited = [process for process in processes if self.of(process)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for process in awaited:
                    if self.of(process):
                        await self._came.setdefault(process, asyncio.Event()).wait()
        return bool(awaited)

    def changed(self) -> None:
        """Another one is attached, or one is not any more: the file has to be written."""
        if self._file is not None and self._due is None:
            self._due = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write)

    def close(self) -> None:
        """Write the file a last time."""
        if self._due is not None:
            self._due.cancel()
        if self._file is not None:
            _write(self._file, self._now())
        self._file = None

    def _now(self) -> list[Known]:
        """The processes that are attached, and the ones that are still awaited."""
        awaited = (known for known in [*self._awaited.values()] if self.of(known.process))
        return [*self._attached(), *awaited][:_MOST]

    def _write(self) -> None:
        self._due = None
        if self._file is None:
            return
        if self._written is not None and not self._written.done():  # the disk is slow
            self.changed()
            return
        loop = asyncio.get_running_loop()
        self._written = loop.run_in_executor(self._writing, _write, self._file, self._now())


def _read(file: Path, alive: Callable[[ProcessId], bool]) -> list[Known]:
    """The processes of the file that live; none where it cannot be read."""
    try:
        found = msgspec.json.decode(file.read_bytes()[:_BYTES_MAX], type=list[Known])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        log.warning("who was attached is not known", extra={"path": str(file), "why": str(error)})
        return []
    return [known for known in found[:_MOST] if alive(known.process)]


def _write(file: Path, attached: list[Known]) -> None:
    partial = file.with_suffix(".part")
    try:
        partial.write_bytes(msgspec.json.encode(attached))
        rename(partial, file)
    except OSError as error:
        log.warning("who is attached cannot be written", extra={"path": str(file), "why": str(error)})
