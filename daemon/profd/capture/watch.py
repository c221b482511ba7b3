"""Watchers of a capture's changes, and the lease of an open-ended one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from profd.capture.records import CaptureRecord
from profd.errors import Exhausted

WATCHERS_MAX: Final = 64  # of one capture
PAUSE_SECONDS_PER_TARGET: Final = 0.0005


class Watchers:
    """Wakes everybody who watches one capture. A slow watcher misses steps in between, never the last."""

    def __init__(self) -> None:
        self._events: set[asyncio.Event] = set()

    @property
    def idle(self) -> bool:
        """Nobody watches."""
        return not self._events

    def notify(self) -> None:
        """Something of the capture has changed."""
        for event in self._events:
            event.set()

    async def follow(self, told: Callable[[], CaptureRecord]) -> AsyncGenerator[CaptureRecord, None]:
        """The record now and after changes, until it is terminal. Raises Exhausted above WATCHERS_MAX.

        `told` says what may be heard of it. It may be the live record: read it before the next step of the event loop.
        """
        if len(self._events) >= WATCHERS_MAX:
            raise Exhausted(f"capture {told().id} is watched by {WATCHERS_MAX} others already")
        event = asyncio.Event()
        self._events.add(event)
        try:
            while True:
                event.clear()
                record = told()
                yield record
                # Changed while the receiver was busy: `event` is set and this does not wait.
                if record.terminal and not event.is_set():
                    return
                await event.wait()
                # Hundreds of targets change hundreds of times, and each time all of them are sent.
                await asyncio.sleep(len(record.targets) * PAUSE_SECONDS_PER_TARGET)
        finally:
            self._events.discard(event)


class ClientLease:
    """Keeps an open-ended capture alive while somebody holds it, and `grace` seconds beyond."""

    def __init__(self, grace: float, on_lost: Callable[[], None]) -> None:
        self._grace = grace
        self._on_lost = on_lost
        self._holders = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Nobody holds it yet: the grace begins."""
        self._timer = asyncio.get_running_loop().call_later(self._grace, self._on_lost)

    def attach(self) -> None:
        """One more holder."""
        self._holders += 1
        self.end()

    def detach(self) -> None:
        """One holder less; the last one starts the grace."""
        self._holders -= 1
        if self._holders == 0:
            self.start()

    def end(self) -> None:
        """Never fire any more, unless somebody detaches."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
