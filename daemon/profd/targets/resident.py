"""How much memory a process has, looked at again and again through its window.

Read from statm, which costs the process nothing, in the thread of all looks that are repeated (targets/looks.py): ten
looks a second at most, and rarer the longer the window is.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Future
from typing import Final

from profd.fairness.thread_by_turns import Repetition
from profd.model.resident import LOOKS_KEPT, Resident, ResidentLook
from profd.targets import procfs
from profd.targets.looks import looks
from profd.targets.process import Process

PERIOD_SECONDS: Final = 0.1


class ResidentWatch:
    """The looks at one process from the begin of its window to the end. On an event loop."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._found: list[ResidentLook] = []
        self._began_ns = 0
        self._age_ns: int | None = None
        self._period = PERIOD_SECONDS
        self._looking: Repetition | None = None
        self._last: Future[float] | None = None

    def begin(self) -> None:
        """Its window is open. Only the first call counts."""
        if self._looking is None:
            self._looking = looks.repeat(self._process.uid, self.look)

    def end(self) -> None:
        """It is over."""
        if self._looking is not None and self._last is None:
            self._looking.end()
            self._last = looks.submit(self._process.uid, self.look)

    async def resident(self) -> Resident:
        """What was seen; nothing of a window that never was open, or of another user's process by now."""
        self.end()
        if self._last is None:
            return Resident()
        await asyncio.wrap_future(self._last)
        # In the thread: on the loop others wait, and one that does not answer is not known to be whose it was.
        mine = looks.submit(self._process.uid, procfs.may_be_of, self._process.id.pid, self._process.uid)
        return Resident(list(self._found), self._age_ns) if await asyncio.wrap_future(mine) else Resident()

    def look(self) -> float:
        """Look once, in one thread at a time; after how many seconds to look again."""
        now, memory = time.monotonic_ns(), procfs.resident_of(self._process.id.pid)
        if memory is None:  # it has ended
            return self._period
        if len(self._found) == LOOKS_KEPT:
            self._found[:] = self._found[::2]
            self._period *= 2
        if not self._found:
            self._began_ns, self._age_ns = now, _age_of(self._process)
        self._found.append(ResidentLook(now - self._began_ns, *memory))
        return self._period


def _age_of(process: Process) -> int:
    """Since its start, which the kernel tells in ticks since the host's, its sleep among them."""
    began = process.id.start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - began)
