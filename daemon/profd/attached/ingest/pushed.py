"""Streams that no capture asked for: whoever speaks docs/wire-format.md may send one, and it becomes a trace of theirs.

A sender that goes away may connect again for UNFINISHED_SECONDS, then what has
come is stored as it is; at once, where one stays and says nothing for
INGEST_PUSHED_IDLE_SECONDS: others may want its place. Unlike the files of captures these do not outlive the
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

from profd import limits
from profd.attached.ingest.intake import Ingest, Intake
from profd.attached.ingest.journal_file import JournalFile
from profd.disk.space import Claim
from profd.errors import BadInput, Exhausted, JobFailed, ProfdError, WorkerDied
from profd.fairness.rare_line import RareLine
from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder, Share, Shares
from profd.limits import (
    INGEST_LABEL_CHARS_MAX,
    INGEST_PUSHED_BYTES_MAX,
    INGEST_PUSHED_ENDED_MAX,
    INGEST_PUSHED_ENDED_PER_UID_MAX,
)
from profd.model.capture import Loss
from profd.store.catalog import TraceRecord
from profd.trust.caller import Caller

UNFINISHED_SECONDS: Final = 15.0
WENT_AWAY: Final = "its sender went away before it had finished"
STALLED: Final = "its sender said nothing for {:g} s, and had not finished"
_SHARE: Final = Share(
    *("pushed", "streams without a capture", limits.INGEST_PUSHED_PER_UID_MAX, limits.INGEST_PUSHED_MAX),
    reserved=limits.INGEST_PUSHED_RESERVED,
    retry_seconds=UNFINISHED_SECONDS,
)
_RATE: Final = Rate(
    "pushed_rate", "streams without a capture", limits.INGEST_PUSHED_PER_SECOND, limits.INGEST_PUSHED_BURST
)

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
    """One such stream. `held` are its file and its place."""

    def __init__(
        self,
        caller: Caller,
        label: str,
        intake: Intake,
        file: BinaryIO,
        held: contextlib.ExitStack,
        keep: Callable[[Push], Awaitable[str]],
    ) -> None:
        self.caller = caller
        self.label = label
        self.intake = intake
        self.file = file
        self.held = held
        self.unfinished = WENT_AWAY  # why, where no Finish has come
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

    async def stalled(self, seconds: float) -> Exhausted:
        """Store what has come of a sender that says nothing; the error to end its call with."""
        self.unfinished = STALLED.format(seconds)
        why = f"nothing came of the stream {self.label!r} for {seconds:g} s, so it was ended"
        try:
            return Exhausted(f"{why}; what had come is the trace {await self.stored()}")
        except ProfdError as error:
            return Exhausted(f"{why}: {error}")

    def close(self) -> None:
        """Take nothing more, and store nothing."""
        self._stop_timer()
        self.intake.close()
        self.held.close()

    def _start(self) -> asyncio.Future[str]:
        self._stop_timer()
        if self._storing is None:
            self._storing = asyncio.ensure_future(self._keep(self))
            self._storing.add_done_callback(_seen)
        return self._storing

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Pushed:
    """All of them."""

    def __init__(self, ingest: Ingest, shelf: Shelf) -> None:
        self._ingest = ingest
        self._shelf = shelf
        self._open: dict[Key, Push] = {}
        self._share = Shares(_SHARE)
        self._rate = Rates(_RATE)
        self._not_stored = RareLine(log, "a pushed stream was not stored", burst=5)  # an empty one takes no effort
        self._ended = _Ended()

    async def open(self, caller: Caller, incarnation: int, epoch: int, label: str) -> Push:
        """The stream of these ids: a new one, or one whose sender comes back. Raises Exhausted, BadInput or Denied."""
        self._rate.take(Holder.of(caller))
        found = self._open.get((incarnation, epoch)) or await self._begin(caller, (incarnation, epoch), label)
        found.intake.require(caller)
        return found

    async def became(self, caller: Caller, incarnation: int, epoch: int) -> str:
        """The trace of a stream whose sender had finished, and asks again. Raises JobFailed where there is none."""
        push = self._open.get((incarnation, epoch))
        if push is not None:
            push.intake.require(caller)
            return await push.stored()
        trace = self._ended.of(caller, (incarnation, epoch))
        if trace:
            return trace
        raise JobFailed("the stream had come, and no trace of yours was made of it; send it again with another number")

    async def _begin(self, caller: Caller, key: Key, label: str) -> Push:
        """A new one, unless another call with the same ids is sooner."""
        with contextlib.ExitStack() as held:
            held.enter_context(self._share.take(Holder.of(caller)))
            file = held.enter_context(contextlib.closing(await self._spooled()))
            if key in self._open:
                return self._open[key]

            def journal() -> JournalFile:
                name = Path(f"the stream {label!r}")
                claim = self._shelf.claim(caller, str(name))
                return JournalFile(name, INGEST_PUSHED_BYTES_MAX, claim, os.dup(file.fileno()))

            intake = self._ingest.expect_in(*key, caller.uid, journal)
            label = label[:INGEST_LABEL_CHARS_MAX]
            push = self._open[key] = Push(caller, label, intake, file, held.pop_all(), self._keep)
            return push

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
        self._open.clear()

    async def _keep(self, push: Push) -> str:
        """Close it and make a trace of what has come."""
        intake = push.intake
        intake.close()
        try:
            if not intake.events:
                raise BadInput(f"no event came with the stream {push.label!r}; nothing is stored")
            warnings = [] if intake.finished.is_set() else [push.unfinished]
            if intake.failure:
                warnings.append(intake.failure)
            trace = await self._stored(push, warnings)
        except Exception as error:
            self._not_stored.tell(push.caller.uid, label=push.label, why=str(error))
            raise
        finally:
            self._open.pop((intake.incarnation, intake.epoch), None)
            push.held.close()
        self._ended.add(push.caller.uid, (intake.incarnation, intake.epoch), trace)
        return trace

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


class _Ended:
    """Traces of streams whose sender may ask once more what they became. The user with most loses the oldest."""

    def __init__(self) -> None:
        self._traces: dict[int, OrderedDict[Key, str]] = {}  # by uid
        self._count = 0

    def of(self, caller: Caller, key: Key) -> str:
        """The trace, empty where the caller has none of these ids."""
        uids = list(self._traces) if caller.admin else [caller.uid]
        return next((self._traces[uid][key] for uid in uids if key in self._traces.get(uid, ())), "")

    def add(self, uid: int, key: Key, trace: str) -> None:
        """One has become this."""
        traces = self._traces.setdefault(uid, OrderedDict())
        self._count += key not in traces
        traces[key] = trace
        if len(traces) > INGEST_PUSHED_ENDED_PER_UID_MAX:
            self._forget(uid)
        if self._count > INGEST_PUSHED_ENDED_MAX:
            self._forget(max(self._traces, key=lambda each: len(self._traces[each])))

    def _forget(self, uid: int) -> None:
        self._traces[uid].popitem(last=False)
        self._count -= 1
        if not self._traces[uid]:
            del self._traces[uid]


def _seen(done: asyncio.Future[str]) -> None:
    """Its sender may have left; the log has said what went wrong."""
    if not done.cancelled():
        done.exception()
