"""One armed incarnation, and what has come from it; `Ingest` holds all of them. On the event loop."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.attached.ingest.journal_file import JournalFile
from profd.attached.ingest.ledger import Ledger
from profd.attached.ingest.remembered import Remembered
from profd.attached.ingest.sink import Rejected, Sink
from profd.attached.ingest.writer import Syncer, Writer
from profd.disk.space import Space, Urgency
from profd.errors import BadInput, Denied, NotFound, ProfdError
from profd.fairness.shares import Holder, Share, Shares
from profd.limits import (
    INGEST_EXPECTED_MAX,
    INGEST_EXPECTED_PER_UID_MAX,
    INGEST_EXPECTED_RESERVED,
    INGEST_LOSSES_MAX,
    TRACE_EVENTS_MAX,
)
from profd.model.capture import Loss
from profd.targets.process import ProcessId
from profd.trust.caller import Caller

FILE_NAME: Final = "chunks.pfc"
_FINISHED_KEPT: Final = 1024  # closed intakes whose streamer may ask once more whether its Finish arrived
_STAGES: Final = ("target", "streamer")  # what a Finish may speak of
_REASON_CHARS_MAX: Final = 40
EXPECTED: Final = Share(
    *("recorded", "processes that are recorded from within", INGEST_EXPECTED_PER_UID_MAX, INGEST_EXPECTED_MAX),
    reserved=INGEST_EXPECTED_RESERVED,
    retry_seconds=30,
)

Told = Iterable[tuple[str, str, int]]  # stage, reason, count


class Intake:
    """The events that come from one process for one capture. The package says how it is used."""

    def __init__(self, ingest: Ingest, incarnation: int, epoch: int, uid: int, file: JournalFile) -> None:
        self.incarnation = incarnation
        self.epoch = epoch
        self.uid = uid
        self.path = file.path
        self.recorded: int | None = None
        self.finished = asyncio.Event()
        self.closed = False
        self._file = file
        ledger = Ledger(incarnation, epoch, allowance=ingest.remembered.of(uid))
        self._sink = Sink(file, ledger, ingest.syncer.written)
        self._ingest = ingest
        self._told: dict[tuple[str, str], int] = {}  # events by stage and reason, as the Finish said
        self._streamer: ProcessId | None = None
        self._holder: asyncio.Event | None = None  # of the call that streams now

    @property
    def events(self) -> int:
        """Events in the file."""
        return self._sink.counts.events

    @property
    def chunks(self) -> int:
        """Chunks in the file."""
        return self._sink.counts.chunks

    @property
    def again(self) -> int:
        """Chunks that came once more and were left out."""
        return self._sink.counts.again

    @property
    def bytes(self) -> int:
        """Bytes of the file."""
        return self._file.bytes

    @property
    def failure(self) -> str:
        """Why nothing more is written; empty while it is."""
        return self._sink.full

    @property
    def losses(self) -> list[Loss]:
        """Everything that is known not to be in the file, by stage and reason."""
        refused = self._sink.counts.refused
        found = [Loss(stage, reason, count) for (stage, reason), count in sorted(self._told.items())]
        found += [Loss("ingest", reason, count) for reason, count in sorted(refused.items())]
        missing = self._missing(sum(refused.values()))
        return [*found, Loss("ingest", "missing", missing)] if missing else found

    def require(self, caller: Caller) -> None:
        """Raise Denied unless this caller may send chunks: the owner of the process, an admin, or its streamer."""
        if not caller.admin and caller.uid != self.uid and not self._sends(caller):
            raise Denied(
                f"process {self.incarnation:016x} belongs to uid {self.uid}; you are {caller.user} (uid {caller.uid})"
            )

    def sent_by(self, streamer: ProcessId) -> None:
        """The daemon has given the arena to this process, whoever it runs as."""
        self._streamer = streamer

    def _sends(self, caller: Caller) -> bool:
        return caller.start_ticks > 0 and self._streamer == ProcessId(caller.pid, caller.start_ticks)

    def hold(self, ended: asyncio.Event) -> None:
        """A call streams now, and ends when that is set. The one before it does: its client has connected again."""
        if self._holder is not None:
            self._holder.set()
        self._holder = ended

    def release(self, ended: asyncio.Event) -> None:
        """That call has ended."""
        if self._holder is ended:
            self._holder = None

    async def take(self, untrusted: memoryview) -> Rejected:
        """Store the chunks of one message; the first that were refused. Returns when it is written. Raises OSError."""
        return await self._ingest.writer.run(self.uid, lambda: self._sink.take(untrusted))

    def recover(self) -> None:
        """Read what an earlier daemon wrote, in the writer's thread."""
        self._ingest.writer.start(self.uid, self._sink.recover)

    async def finish(self, told_untrusted: Told, recorded_untrusted: int) -> None:
        """The streamer has sent everything and says what will not come."""
        await self._ingest.writer.run(self.uid, lambda: None)  # after what is still being written
        self.tell(told_untrusted, recorded_untrusted)
        self.finished.set()

    def tell(self, told_untrusted: Told, recorded_untrusted: int) -> None:
        """Take what the target's side counted: losses by stage and reason, and the events that were recorded."""
        told: dict[tuple[str, str], int] = {}
        for stage, reason, count in list(told_untrusted)[:INGEST_LOSSES_MAX]:
            key = (stage if stage in _STAGES else "streamer", _word(reason))
            told[key] = min(told.get(key, 0) + count, TRACE_EVENTS_MAX)
        self._told = {key: count for key, count in told.items() if count > 0}
        self.recorded = min(recorded_untrusted, TRACE_EVENTS_MAX)

    def close(self) -> None:
        """The file is whole and nothing is added to it. Safe to repeat."""
        if self.closed:
            return
        self.closed = True
        self._ingest.writer.start(self.uid, self._sink.close)  # behind what is still being written
        self._ingest.syncer.close_file(self._file)
        self._ingest.forget(self)
        if self._holder is not None:
            self._holder.set()

    def _missing(self, refused: int) -> int:
        """Events that were recorded and that nobody has accounted for."""
        if self.recorded is None:
            return 0
        streamer = sum(count for (stage, _), count in self._told.items() if stage == "streamer")
        return max(0, self.recorded - self.events - streamer - refused)


@dataclass(frozen=True, slots=True)
class IngestStatistics:
    """Counts since the daemon started, closed intakes included, and what is open now."""

    expected: int = 0
    chunks: int = 0
    events: int = 0
    bytes: int = 0
    again: int = 0
    sync_failures: int = 0


class Ingest:
    """All intakes of the daemon, and the threads they share."""

    def __init__(self, space: Space | None = None, share: Share = EXPECTED) -> None:
        """`space`: of the filesystem that journals are on, where others write as well."""
        self._space = space
        self.writer = Writer()
        self.remembered = Remembered()
        self.syncer = Syncer()
        self._expected: dict[tuple[int, int], Intake] = {}
        self._finished: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._share = Shares(share)
        self._past = IngestStatistics(0, 0, 0, 0, 0, 0)

    def open(self) -> None:
        """Start the threads."""
        self.syncer.open()

    def close(self) -> None:
        """Close every intake and end the threads; files are synced."""
        for intake in list(self._expected.values()):
            intake.close()
        self.writer.close()
        self.syncer.close()

    async def expect(self, incarnation: int, epoch: int, uid: int, directory: Path) -> Intake:
        """Take chunks of this process for this capture. Raises Exhausted, or BadInput if it is expected already.

        The file is opened in a thread: a disk may take its time.
        """
        path = directory / FILE_NAME
        claim = self._space.claim(uid, "the journal of this capture", Urgency.RECORDING) if self._space else None
        opening = asyncio.ensure_future(asyncio.to_thread(JournalFile, path, claim=claim))
        try:
            file = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise
        try:
            return self.expect_in(incarnation, epoch, uid, lambda: file)
        except ProfdError:
            file.close()
            raise

    def expect_in(self, incarnation: int, epoch: int, uid: int, file: Callable[[], JournalFile]) -> Intake:
        """The same into a file of the caller's making, which is asked for when all else is well."""
        key = (incarnation, epoch)
        if key in self._expected:
            raise BadInput(f"process {incarnation:016x} is recorded already (epoch {epoch:016x})")
        self._share.hold(_holder(uid))  # until it is forgotten
        try:
            intake = self._expected[key] = Intake(self, incarnation, epoch, uid, file())
        except BaseException:
            self._share.give_back(_holder(uid))
            raise
        if intake.bytes:
            intake.recover()
        return intake

    def find(self, incarnation: int, epoch: int) -> Intake:
        """The intake of a stream that opens. Raises NotFound."""
        intake = self._expected.get((incarnation, epoch))
        if intake is None:
            raise NotFound(
                f"no capture waits for process {incarnation:016x} with epoch {epoch:016x}: "
                "it has ended, or the daemon was started anew"
            )
        return intake

    def has_finished(self, incarnation: int, epoch: int) -> bool:
        """Whether the Finish of this stream was taken, and its intake closed, some time ago."""
        return (incarnation, epoch) in self._finished

    def forget(self, intake: Intake) -> None:
        """An intake was closed."""
        key = (intake.incarnation, intake.epoch)
        if self._expected.pop(key, None) is None:
            return
        self._share.give_back(_holder(intake.uid))
        self._past = self._counted(self._past, intake)
        if intake.finished.is_set():
            self._finished[key] = None
        while len(self._finished) > _FINISHED_KEPT:
            self._finished.popitem(last=False)

    def statistics(self) -> IngestStatistics:
        """Counts for metrics."""
        total = self._past
        for intake in self._expected.values():
            total = self._counted(total, intake)
        return total

    def _counted(self, total: IngestStatistics, intake: Intake) -> IngestStatistics:
        return IngestStatistics(
            expected=len(self._expected),
            chunks=total.chunks + intake.chunks,
            events=total.events + intake.events,
            bytes=total.bytes + intake.bytes,
            again=total.again + intake.again,
            sync_failures=self.syncer.failures,
        )


def _holder(uid: int) -> Holder:
    """The holder whose share a recorded process uses. Groups are not asked: it is root's, the daemon's, or a user's."""
    return Holder(uid, reserved=uid in (0, os.geteuid()))


def _close_unwanted(opening: asyncio.Future[JournalFile]) -> None:
    """The caller has given up; a thread cannot be stopped."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _word(untrusted: str) -> str:
    """A reason as we write them: it becomes a key in the trace's metadata."""
    kept = "".join(
        character for character in untrusted[:_REASON_CHARS_MAX].lower() if character.isalnum() or character == "_"
    )
    return kept if kept.isascii() and kept else "other"
