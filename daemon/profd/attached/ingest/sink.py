"""Chunks of one incarnation into one file: checked, each once, written in the writer's thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from profd.attached.ingest.chunk import Chunk, Refusal, split_untrusted
from profd.attached.ingest.journal_file import JournalFile, JournalFull
from profd.attached.ingest.ledger import ChunkFacts, Ledger
from profd.limits import INGEST_BROKEN_MAX, INGEST_REJECTED_MAX

Rejected = list[tuple[int, Refusal]]  # index in the message, reason; the first INGEST_REJECTED_MAX of them

# What no recorder and no streamer of ours ever sends.
_BROKEN: Final = frozenset((Refusal.CRC, Refusal.HEADER, Refusal.VERSION, Refusal.FOREIGN))


@dataclass(slots=True)
class SinkCounts:
    """Counts of a sink's work. Written by its thread, read by anybody."""

    chunks: int = 0  # in the file
    events: int = 0  # in the file
    again: int = 0  # chunks that came once more
    refused: dict[str, int] = field(default_factory=dict)  # events by reason


@dataclass(slots=True)
class _Run:
    """Chunks that stand one after the other in a message and in the file."""

    start: int
    end: int
    chunks: list[tuple[int, Chunk]]


class Sink:
    """A ledger and its file. One thread at a time."""

    def __init__(self, file: JournalFile, ledger: Ledger, written: Callable[[JournalFile], None]) -> None:
        """`written` is told of the file after each write."""
        self.counts = SinkCounts()
        self.full = ""  # why nothing more is written
        self._file = file
        self._ledger = ledger
        self._written = written
        self._recovered = False
        self._broken = 0  # chunks
        self._sound = 0

    def take(self, data: memoryview) -> Rejected:
        """Write what is new of one message. Raises OSError when an older file cannot be read."""
        self.recover()
        rejected: Rejected = []
        if self._is_hopeless():
            return rejected
        runs: list[_Run] = []
        for index, chunk in enumerate(split_untrusted(data)):
            verdict = self._ledger.judge(chunk)
            if isinstance(verdict, Refusal):
                self._refuse(rejected, index, chunk, verdict)
                self._broken += verdict in _BROKEN
                if self._is_hopeless():
                    break
            elif verdict is ChunkFacts.BEFORE:
                self.counts.again += 1
            else:
                # Before it is written, for the sake of a chunk that stands twice in a message:
                # a write that fails is the last one.
                self._ledger.stored(chunk)
                self._sound += 1
                _extend(runs, index, chunk)
        for run in runs:
            self._write(data, run, rejected)
        if self._is_hopeless() and not self.full:
            self.full = f"{self._broken} chunks were broken, more than were sound: nothing more is taken"
        return sorted(rejected)[:INGEST_REJECTED_MAX]

    def _is_hopeless(self) -> bool:
        """Whether so much is broken that the rest is not worth the time that looking at it takes from others."""
        return self._broken > max(INGEST_BROKEN_MAX, self._sound)

    def recover(self) -> None:
        """Go on with what an earlier daemon wrote; the first call only. Raises OSError."""
        if not self._recovered:
            self._recovered = True
            self._file.recover(self._known)

    def close(self) -> None:
        """Nothing more is taken, and nothing is remembered of what was."""
        self._ledger.close()

    def _known(self, chunk: Chunk) -> bool:
        # What its user may not have any more was once taken: nothing of a file is cut for that.
        if self._ledger.judge(chunk) not in (ChunkFacts.NEW, Refusal.THREADS_OF_USER):
            return False
        self._ledger.stored(chunk)
        self._count(chunk)
        return True

    def _write(self, data: memoryview, run: _Run, rejected: Rejected) -> None:
        try:
            if not self.full:
                self._file.append(data[run.start : run.end])
        except JournalFull as error:
            # For good: a file with holes in it would tell less than one that ends.
            self.full = str(error)
        if self.full:
            for index, chunk in run.chunks:
                self._refuse(rejected, index, chunk, Refusal.JOURNAL_FULL)
            return
        for _, chunk in run.chunks:
            self._count(chunk)
        self._written(self._file)

    def _count(self, chunk: Chunk) -> None:
        self.counts.chunks += 1
        self.counts.events += chunk.events

    def _refuse(self, rejected: Rejected, index: int, chunk: Chunk, refusal: Refusal) -> None:
        rejected.append((index, refusal))
        self.counts.refused[refusal] = self.counts.refused.get(refusal, 0) + chunk.events


def _extend(runs: list[_Run], index: int, chunk: Chunk) -> None:
    if runs and runs[-1].end == chunk.start:
        runs[-1].end = chunk.end
        runs[-1].chunks.append((index, chunk))
    else:
        runs.append(_Run(chunk.start, chunk.end, [(index, chunk)]))
