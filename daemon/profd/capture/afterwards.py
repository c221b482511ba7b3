"""The seconds after a target was recorded: its window is compared with what its process takes of the host then."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Final

from profd.capture.records import CaptureRecord, TargetRecord
from profd.model.load import Load
from profd.targets.load import AFTER_SECONDS, LoadWatch
from profd.targets.process import ProcessId

LEAST_SECONDS: Final = 1.0  # that a stretch lasts, where the next capture of the process ends it

OnLoad = Callable[[str, Load], None]
"""Hears of a source's target, with all that is known of its load."""


class Afterwards:
    """Looks at processes once more, each some seconds after its window."""

    def __init__(self, on_load: OnLoad, on_change: Callable[[CaptureRecord], None]) -> None:
        self._on_load = on_load
        self._on_change = on_change
        self._tasks: set[asyncio.Task[None]] = set()
        self._recorded_anew: dict[ProcessId, asyncio.Event] = {}

    def begin(self, record: CaptureRecord, target: TargetRecord, watch: LoadWatch | None) -> None:
        """A target has ended; nothing where nobody could look at its process."""
        if watch is not None and watch.ended_at is not None and target.load.during is not None:
            self._later(self._look(record, target, watch, watch.ended_at))

    def cut(self, processes: Iterable[ProcessId]) -> None:
        """They are recorded anew: what comes now is of no recording's aftermath."""
        for process in processes:
            if (event := self._recorded_anew.get(process)) is not None:
                event.set()

    async def close(self) -> None:
        """Nobody is waited for."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self, record: CaptureRecord, target: TargetRecord, watch: LoadWatch, ended_at: float) -> None:
        anew = self._recorded_anew[target.process] = asyncio.Event()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(anew.wait(), max(0.0, ended_at + AFTER_SECONDS - time.monotonic()))
        finally:
            if self._recorded_anew.get(target.process) is anew:
                del self._recorded_anew[target.process]
        if time.monotonic() - ended_at < LEAST_SECONDS:
            return
        target.load = await watch.complete(target.load)
        self._on_load(target.source, target.load)
        self._on_change(record)

    def _later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
