"""The parts of `profd.attached.ingest` that a recording needs. That package says what each of these does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from profd.model.capture import Loss


class Intake(Protocol):
    """The events of one epoch that have arrived."""

    @property
    def path(self) -> Path:
        """The journal file."""
        ...

    @property
    def events(self) -> int:
        """Acked so far."""
        ...

    @property
    def finished(self) -> asyncio.Event:
        """Everything is there."""
        ...

    @property
    def losses(self) -> Sequence[Loss]:
        """Events that will not come."""
        ...

    @property
    def failure(self) -> str:
        """Why nothing more can be written; empty while it can."""
        ...

    async def finish(self, told_untrusted: Iterable[tuple[str, str, int]], recorded_untrusted: int) -> None:
        """Nothing more comes; by stage and reason what its process has lost, and the events that it recorded."""
        ...

    def close(self) -> None:
        """No more is taken."""
        ...


class Drain(Protocol):
    """The streamer's work on one arena."""

    may_be_written: bool
    """Its target has not said that it is over, and is not known to be dead: its memory stays."""

    @property
    def ended(self) -> asyncio.Event:
        """Nothing more will come."""
        ...

    @property
    def problem(self) -> str:
        """A sentence about a failure; empty if there was none."""
        ...

    @property
    def restarts(self) -> int:
        """How often its streamer was started again."""
        ...

    async def finish(self, *, target_died: bool) -> None:
        """Send what is left; the target writes no more."""
        ...

    def close(self) -> None:
        """Let go of the arena."""
        ...


class Ingest(Protocol):
    """Where chunks arrive."""

    async def expect(self, incarnation: int, epoch: int, uid: int, directory: Path) -> Intake:
        """Take the chunks of one epoch from now on."""
        ...


class Streamers(Protocol):
    """The processes that drain arenas."""

    def drain(self, uid: int, incarnation: int, epoch: int, fd: int) -> Drain:
        """Begin; `fd` stays the caller's."""
        ...

    def why_not(self) -> str:
        """Why nothing can be drained; empty if it can."""
        ...
