"""The sampled process, watched from outside while py-spy reads it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Final

from profd.decode.anchor import ENDED_THREADS_MAX
from profd.limits import THREADS_NOTED_MAX
from profd.targets import procfs
from profd.targets.process import Process
from profd.targets.table import ProcessTable

_RESUME_SECONDS: Final = 2.0
_RESUME_STEP_SECONDS: Final = 0.02


class Target:
    """One process: is it there, which of its threads have ended, was it left stopped?"""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._table = ProcessTable()
        self._folder = Path("/proc") / str(process.id.pid)
        # Of the thread that looks (targets/looks.py): a list of 1,000 threads takes 1 ms.
        self._threads: dict[str, str] = {}  # id on this host -> id in the process's own pid namespace
        self._ended: dict[str, int] = {}

    def alive(self) -> bool:
        """Is this very process still there?"""
        return self._table.alive(self.process.id)

    def tracer(self) -> int:
        """The pid of the debugger that holds it, 0 for none."""
        status = procfs.status_of(self.process.id.pid)
        return status.tracer if status else 0

    @property
    def ended(self) -> dict[str, int]:
        """Threads that were seen to have ended, by their ids as the process knows them, in Unix ns."""
        return dict(self._ended)

    def note_ended(self) -> None:
        """Note which threads have ended since the last time: py-spy does not say. For the thread that looks.

        Nothing is noted of a process with more threads than THREADS_NOTED_MAX: others wait for this look.
        """
        try:
            present = set(os.listdir(self._folder / "task"))
        except OSError:  # the process itself has ended
            return
        if len(present) > THREADS_NOTED_MAX:
            return
        for gone in self._threads.keys() - present:
            inner = self._threads.pop(gone)
            if len(self._ended) < ENDED_THREADS_MAX:
                self._ended[inner] = time.time_ns()
        new = sorted(present - self._threads.keys())
        for thread, inner in zip(new, self._inner_ids(new), strict=True):
            self._threads[thread] = inner
            self._ended.pop(inner, None)  # the id is in use again

    def _inner_ids(self, threads: list[str]) -> list[str]:
        if len(self.process.namespace_pids) < 2:
            return threads  # as on the host: nothing is read
        return list(map(str, procfs.inner_ids(self.process.id.pid, list(map(int, threads)))))

    async def resume_if_left_stopped(self) -> bool:
        """Undo what a killed tracer may leave behind; True if the process had to be continued.

        PTRACE_ATTACH sends SIGSTOP. A tracer that is killed before the stop
        arrives no longer swallows it, and the process stops for good (ptrace(2),
        BUGS). The signal may arrive a little later, so this looks for a while.
        """
        until = time.monotonic() + _RESUME_SECONDS
        while time.monotonic() < until and self.alive():
            if self.tracer() == 0 and self.stopped():
                os.kill(self.process.id.pid, signal.SIGCONT)
                return True
            await asyncio.sleep(_RESUME_STEP_SECONDS)
        return False

    def stopped(self) -> bool:
        """Has a signal stopped it?"""
        stat = procfs.stat_of(self.process.id.pid)
        return stat is not None and stat.state == "T"
