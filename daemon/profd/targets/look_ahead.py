"""Looks at processes before anybody asks, so that what is remembered of them is there when somebody does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from profd.limits import AGENTS_MAX
from profd.targets.process import ProcessId


class LookAhead:
    """One thread, one look at a time. A process that waits for its look is not noted again, however often it asks."""

    def __init__(self, look: Callable[[int], object]) -> None:
        """`look` is called with a pid, in the thread; `close` at the end."""
        self._look = look
        self._waiting: set[ProcessId] = set()
        self._thread = ThreadPoolExecutor(1, "profd-looks")

    def ask(self, process: ProcessId) -> None:
        """Have it looked at soon. What is asked beyond AGENTS_MAX that wait is left to whoever needs it."""
        if process in self._waiting or len(self._waiting) >= AGENTS_MAX:
            return
        self._waiting.add(process)
        with contextlib.suppress(RuntimeError):  # closing
            self._thread.submit(self._do, process)

    def close(self) -> None:
        """Let the look that runs end, and begin none."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _do(self, process: ProcessId) -> None:
        self._waiting.discard(process)  # first: what changes from here on is seen, or asked for again
        self._look(process.pid)
