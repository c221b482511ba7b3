"""The parts of the daemon that the manager needs, as interfaces.

The daemon's parts satisfy them as they are; tests bring their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol

from profd.capture.outcome import StoredTrace
from profd.capture.records import CaptureRecord, TargetRecord
from profd.model.capture import RawFile
from profd.targets.process import Process, ProcessId


class Processes(Protocol):
    """The process table."""

    def snapshot(self) -> list[Process]:
        """Every process there is now."""
        ...

    def owned(self, uid: int, pids: Collection[int] = ()) -> list[Process]:
        """The processes of a user, these besides, and what is above any of them; nobody else's are asked."""
        ...

    def get(self, pid: int) -> Process | None:
        """The process with this host pid now."""
        ...

    def recall(self, pid: int) -> Process | None:
        """The same by what is remembered of it; None where that needs a look, or there is none. Never waits."""
        ...

    def as_its_user_sees(self, process: Process) -> Process:
        """The same without what the kernel keeps from its user."""
        ...

    def alive(self, process: ProcessId) -> bool:
        """Whether exactly this process still runs."""
        ...


class Records(Protocol):
    """Durable capture records, one JSON object each. Touches the disk: called in one thread."""

    def put(self, capture: str, record: dict[str, Any]) -> None:
        """Write or replace one, crash-safe. Raises ProfdError or OSError."""
        ...

    def all(self) -> list[dict[str, Any]]:
        """All of them, oldest first; damaged ones are left out and logged."""
        ...

    def names(self) -> Collection[str]:
        """The captures that have one, also a damaged one."""
        ...

    def size(self, capture: str) -> int:
        """Bytes of one on the disk; 0 if there is none."""
        ...

    def remove(self, capture: str) -> None:
        """Forget one; unknown ids are no error."""
        ...


class Storing(Protocol):
    """Decode, collate and store raw files in a worker; the trace is visible when it returns."""

    async def store(self, capture: CaptureRecord, target: TargetRecord, files: list[RawFile]) -> StoredTrace:
        """Raises ProfdError (BadTrace, Exhausted, JobFailed, ...) or OSError; nothing is visible then."""
        ...

    def find(self, capture: str, process: ProcessId) -> StoredTrace | None:
        """The trace that this target of a capture has left in the store, if it has."""
        ...


Ended = Callable[[ProcessId], Awaitable[None]]
"""Returns when the process has ended (at once if it already has)."""
