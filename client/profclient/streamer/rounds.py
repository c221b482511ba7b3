"""One timer for all arenas that have nothing to send: with one each, eight woke the streamer 200 times a second."""

from __future__ import annotations

import asyncio
from typing import Protocol

_TOGETHER = 1 / 2  # of its pause has passed: it is looked at with another, and not woken for alone


class Waiting(Protocol):
    """What has nothing to send."""

    @property
    def pause_seconds(self) -> float:
        """Until it is looked at again."""
        ...

    def look(self) -> bool:
        """Whether there is something. Waits for nothing."""
        ...

    def wake(self) -> None:
        """There is."""
        ...


class Rounds:
    """Of one streamer. Everything in its event loop."""

    def __init__(self) -> None:
        self._due: dict[Waiting, float] = {}  # by the loop's clock
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, waiting: Waiting) -> None:
        """Look at it, until `end`, and wake it once there is something."""
        due = self._due[waiting] = asyncio.get_running_loop().time() + waiting.pause_seconds
        if self._timer is None or due < self._timer.when():
            self._set(due)

    def end(self, waiting: Waiting) -> None:
        """No more. Safe to repeat."""
        self._due.pop(waiting, None)
        if not self._due and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for waiting, due in list(self._due.items()):
            if due - now > waiting.pause_seconds * _TOGETHER:
                continue
            if self._has_something(waiting):
                self.end(waiting)
                waiting.wake()
            else:
                self._due[waiting] = now + waiting.pause_seconds
        if self._due:
            self._set(min(self._due.values()))

    def _has_something(self, waiting: Waiting) -> bool:
        try:
            return waiting.look()
        except Exception:  # its own look says so where it belongs; the others' go on
            return True

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._look)
