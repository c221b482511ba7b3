"""Streams that no capture asked for: whoever speaks docs/wire-format.md may send one, and it becomes a trace of theirs.

A sender that goes away may connect again for UNFINISHED_SECONDS, then what has
come is stored as it is. Unlike the files of captures these do not outlive the
daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from profd.capture.model import Loss
from profd.errors import BadInput, Exhausted, JobFailed, WorkerDied
from profd.ingest.intake import Ingest, Intake
from profd.ingest.journal_file import JournalFile
from profd.limits import (
    INGEST_LABEL_CHARS_MAX,
    INGEST_PUSHED_BYTES_MAX,
    INGEST_PUSHED_MAX,
    INGEST_PUSHED_PER_UID_MAX,
)
from profd.store.catalog import TraceRecord
from profd.store.space import Claim
from profd.trust.caller import Caller

UNFINISHED_SECONDS: Final = 15.0
WENT_AWAY: Final = "its sender went away before it had finished"
_ENDED_KEPT: Final = 1024  # streams whose sender may ask once more what they became

log = logging.getLogger("profd.ingest")

Key = tuple[int, int]  # incarnation, epoch


class Shelf(Protocol):
    """Where finished streams go: `store.library.Library`."""

    def spool(self) -> BinaryIO:
        """A nameless file. Blocks. Raises ProfdError without room."""
        ...

    def claim(self, caller: Caller, what: str) -> Claim:
        """Of the room for it."""
        ...

    async def import_stream(
        self, caller: Caller, fd: int, label: str, lost: Sequence[Loss], warnings: Sequence[str]
    ) -> TraceRecord:
        """Make a trace of it. Raises ProfdError."""
        ...


class Push:
    """One such stream."""

    def __init__(
        self, caller: Caller, label: str, intake: Intake, file: BinaryIO, keep: Callable[[Push], Awaitable[str]]
    ) -> None:
        self.caller = caller
        self.label = label
        self.intake = intake
        self.file = file
        self._keep = keep
        self._storing: asyncio.Future[str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._calls = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """For as long as a call sends; then the sender has some time to come back."""
        self._stop_timer()
        self._calls += 1  # a sender that connects again may be sooner than the end of its older call
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._storing is None and not self.intake.closed:
                self._timer = asyncio.get_running_loop().call_later(UNFINISHED_SECONDS, self._start)

    async def stored(self) -> str:
        """The trace that it became; whoever waits for it may leave."""
        return await asyncio.shield(self._start())

    def close(self) -> None:
        """Take nothing more, and store nothing."""
        self._stop_timer()
        self.intake.close()

    def _start(self) -> asyncio.Future[str]:
        self._stop_timer()
        if self._storing is None:
            self._storing = asyncio.ensure_future(self._keep(self))
            self._storing.add_done_callback(self._log_failure)
        return self._storing

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _log_failure(self, done: asyncio.Future[str]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log.warning("a pushed stream was not stored", extra={"label": self.label, "why": str(error)})


class Pushed:
    """All of them."""

    def __init__(self, ingest: Ingest, shelf: Shelf) -> None:
        self._ingest = ingest
        self._shelf = shelf
        self._open: dict[Key, Push] = {}
        self._ended: OrderedDict[Key, tuple[int, str]] = OrderedDict()  # the owner, and the trace or empty

    async def open(self, caller: Caller, incarnation: int, epoch: int, label: str) -> Push:
        """The stream of these ids: a new one, or one whose sender comes back. Raises Exhausted, BadInput or Denied."""
        found = self._open.get((incarnation, epoch))
        if found is None:
            file = await self._spooled()
            found = self._open.get((incarnation, epoch)) or self._begin(caller, incarnation, epoch, label, file)
            if found.file is not file:
                file.close()
        found.intake.require(caller)
        return found

    async def became(self, caller: Caller, incarnation: int, epoch: int) -> str:
        """The trace of a stream whose sender had finished, and asks again. Raises JobFailed where there is none."""
        push = self._open.get((incarnation, epoch))
        if push is not None:
            push.intake.require(caller)
            return await push.stored()
        uid, trace = self._ended.get((incarnation, epoch), (None, ""))
        if trace and (caller.admin or caller.uid == uid):
            return trace
        raise JobFailed("the stream had come, and no trace of yours was made of it; send it again with another number")

    async def _spooled(self) -> BinaryIO:
        """A file, closed again when its caller goes away meanwhile."""
        making = asyncio.ensure_future(asyncio.to_thread(self._shelf.spool))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            (await making).close()
            raise

    def close(self) -> None:
        """End all; what has not finished is dropped."""
        for push in self._open.values():
            log.warning("a pushed stream is dropped", extra={"label": push.label, "events": push.intake.events})
            push.close()
            push.file.close()
        self._open.clear()

    def _begin(self, caller: Caller, incarnation: int, epoch: int, label: str, file: BinaryIO) -> Push:
        def journal() -> JournalFile:
            name = Path(f"the stream {label!r}")
            claim = self._shelf.claim(caller, str(name))
            return JournalFile(name, INGEST_PUSHED_BYTES_MAX, claim, os.dup(file.fileno()))

        try:
            self._check_room(caller)
            intake = self._ingest.expect_in(incarnation, epoch, caller.uid, journal)
        except BaseException:
            file.close()
            raise
        push = self._open[incarnation, epoch] = Push(caller, label[:INGEST_LABEL_CHARS_MAX], intake, file, self._keep)
        return push

    def _check_room(self, caller: Caller) -> None:
        theirs = sum(push.caller.uid == caller.uid for push in self._open.values())
        if len(self._open) >= INGEST_PUSHED_MAX or theirs >= INGEST_PUSHED_PER_UID_MAX:
            raise Exhausted(f"{len(self._open)} streams are open already, {theirs} of them yours; finish one first")

    async def _keep(self, push: Push) -> str:
        """Close it and make a trace of what has come."""
        intake = push.intake
        intake.close()
        try:
            if not intake.events:
                raise BadInput(f"no event came with the stream {push.label!r}; nothing is stored")
            warnings = [] if intake.finished.is_set() else [WENT_AWAY]
            if intake.failure:
                warnings.append(intake.failure)
            trace = await self._stored(push, warnings)
            self._ended[intake.incarnation, intake.epoch] = (push.caller.uid, trace)
            while len(self._ended) > _ENDED_KEPT:
                self._ended.popitem(last=False)
            return trace
        finally:
            self._open.pop((intake.incarnation, intake.epoch), None)
            push.file.close()

    async def _stored(self, push: Push, warnings: Sequence[str]) -> str:
        """The trace. Its sender may be gone, and nobody has the events but us: a worker that dies has a successor."""

        async def store() -> str:
            fd, losses = push.file.fileno(), push.intake.losses
            return (await self._shelf.import_stream(push.caller, fd, push.label, losses, warnings)).id

        try:
            return await store()
        except WorkerDied as error:
            log.warning("a pushed stream is stored anew", extra={"label": push.label, "why": str(error)})
            return await store()
