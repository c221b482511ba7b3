"""Which chunks of one incarnation have come: each is stored once, whatever is sent again. Pure.

Chunks of a stream come nearly in order, so what is remembered of a stream is
the next sequence; sequences that others have overtaken stand in one bounded
list. Memory is bounded by the streams, not by the chunks, and by the allowance
of the user.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from profd.attached.ingest.chunk import Chunk, Refusal
from profd.attached.ingest.remembered import EntryAllowance
from profd.limits import INGEST_GAPS_MAX, INGEST_THREADS_MAX

_GAPS_OF_A_CHUNK: Final = 16  # that each chunk may leave, in the long run


class ChunkFacts(Enum):
    """The facts about a chunk that is not refused."""

    NEW = auto()
    BEFORE = auto()  # stored already, or so late that nobody remembers that it was awaited


class Ledger:
    """The chunks of one (incarnation, epoch)."""

    def __init__(
        self,
        incarnation: int,
        epoch: int,
        threads_max: int = INGEST_THREADS_MAX,
        gaps_max: int = INGEST_GAPS_MAX,
        allowance: EntryAllowance | None = None,
    ) -> None:
        """`allowance`: of the user, shared with others' ledgers of that user; none: of this one alone."""
        self._incarnation = incarnation
        self._epoch = epoch
        self._threads_max = threads_max
        self._gaps_max = gaps_max
        self._allowance = allowance or EntryAllowance()
        self._closed = False
        self._may_remember = gaps_max  # gaps now
        self._next: dict[int, int] = {}  # by stream: one above the highest sequence stored
        self._gaps: dict[tuple[int, int], None] = {}  # (stream, sequence) below it that have not come, oldest first

    def judge(self, chunk: Chunk) -> ChunkFacts | Refusal:
        """The verdict on a chunk. Changes nothing: it may still fail to be written."""
        if chunk.refusal is not None:
            return chunk.refusal
        if self._closed:
            return Refusal.JOURNAL_FULL
        if (chunk.incarnation, chunk.epoch) != (self._incarnation, self._epoch):
            return Refusal.FOREIGN
        expected = self._next.get(chunk.stream)
        if expected is None:
            return self._judge_thread()
        if chunk.sequence >= expected or (chunk.stream, chunk.sequence) in self._gaps:
            return ChunkFacts.NEW
        return ChunkFacts.BEFORE

    def stored(self, chunk: Chunk) -> None:
        """Remember a chunk that `judge` called new, now that it is written."""
        before = self._remembered
        self._remember(chunk)
        self._allowance.use(self._remembered - before)

    def close(self) -> None:
        """Forget all, and take nothing more: the allowance is others'."""
        self._closed = True
        self._allowance.use(-self._remembered)
        self._next, self._gaps = {}, {}

    @property
    def _remembered(self) -> int:
        return len(self._next) + len(self._gaps)

    def _judge_thread(self) -> ChunkFacts | Refusal:
        """The verdict on the first chunk of a thread."""
        if len(self._next) >= self._threads_max:
            return Refusal.TOO_MANY_THREADS
        return ChunkFacts.NEW if self._allowance.left() else Refusal.THREADS_OF_USER

    def _remember(self, chunk: Chunk) -> None:
        expected = self._next.get(chunk.stream, 0)
        if chunk.sequence < expected:
            del self._gaps[chunk.stream, chunk.sequence]
            return
        thread = int(chunk.stream not in self._next)
        self._next[chunk.stream] = chunk.sequence + 1
        room = max(0, self._allowance.left(self._may_remember + thread) - thread)
        # Of a jump that is too wide only the end is remembered: what comes late is what was sent just before. The same
        # where all chunks jump: each of 30,000 would cost a millisecond in which others wait for the interpreter.
        begin = max(expected, chunk.sequence - room)
        self._may_remember = min(self._may_remember - (chunk.sequence - begin) + _GAPS_OF_A_CHUNK, self._gaps_max)
        for sequence in range(begin, chunk.sequence):
            self._gaps[chunk.stream, sequence] = None
        while len(self._gaps) > self._gaps_max:
            del self._gaps[next(iter(self._gaps))]
