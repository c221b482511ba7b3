"""What the manager needs from the rest of the daemon, as interfaces.

The daemon's parts satisfy them as they are; tests bring their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Protocol

from profd.capture.outcome import StoredTrace
from profd.capture.records import CaptureRecord, TargetRecord
from profd.disk.space import Claim
from profd.model.capture import RawFile
from profd.targets.process import Process, ProcessId


class Identity(Protocol):
    """Who asks. Proven by the kernel, never said by the caller."""

    @property
    def uid(self) -> int:
        """Numeric user id."""
        ...

    @property
    def user(self) -> str:
        """Its name, or the number as text."""
        ...

    @property
    def pid(self) -> int:
        """The process that asks, as the daemon sees it; 0 when it cannot."""
        ...

    @property
    def admin(self) -> bool:
        """Root or of the admin group: may do everything."""
        ...


class Processes(Protocol):
    """The process table."""

    def snapshot(self) -> list[Process]:
        """Every process there is now."""
        ...

    def get(self, pid: int) -> Process | None:
        """The process with this host pid now."""
        ...

    def recall(self, pid: int) -> Process | None:
        """The same by what is remembered of it; None where that needs a look, or there is none. Never waits."""
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


class Journal(Protocol):
    """Where raw files lie until the store has their trace; bounds itself. Touches the disk: called in threads."""

    def path(self, capture: str, process: ProcessId) -> Path:
        """Where the private directory of one target is, or will be. Touches nothing."""
        ...

    def directory(self, capture: str, process: ProcessId) -> Path:
        """The same directory; made if absent. Raises ProfdError or OSError."""
        ...

    def claim(self, uid: int) -> Claim:
        """Of room for the raw files of one target. Touches nothing."""
        ...

    def remove(self, capture: str, process: ProcessId) -> None:
        """Delete it with everything in it. Raises ProfdError or OSError."""
        ...

    def files(self, capture: str, process: ProcessId) -> list[Path]:
        """The whole files of one target; none if it has no directory."""
        ...

    def unfinished(self, capture: str, process: ProcessId) -> list[RawFile]:
        """Files that a source was writing when the daemon died, and that are of use as they are."""
        ...

    def whole(self, capture: str, process: ProcessId) -> bool:
        """Whether these are all that there was to be recorded."""
        ...

    def sessions(self) -> list[tuple[str, ProcessId]]:
        """Capture and process of everything in it."""
        ...

    def keep_only(self, captures: Collection[str]) -> None:
        """Delete what belongs to none of these captures. Raises ProfdError or OSError."""
        ...


Ended = Callable[[ProcessId], Awaitable[None]]
"""Returns when the process has ended (at once if it already has)."""
