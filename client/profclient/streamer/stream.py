"""One gRPC call: chunks of one arena within the daemon's credit, freed by its acks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from profproto.v1 import ingest_pb2 as pb

from profclient.streamer.arena import BATCH_BYTES_MAX, Arena, Batch
from profclient.streamer.rounds import Rounds

VERSIONS = (1, 1)  # of the wire format
POLL_SECONDS_MAX = 0.02  # between two looks at an arena that fills slowly
POLL_SECONDS_MIN = 0.002  # at one that fills fast
MANY_ARENAS = 4  # so many or more are looked at half as often: in 0.04 s none outruns what is allocated ahead of it
_FILLS_FAST = 1 / 16  # of its chunks waiting
_WAITED_FOR_SECONDS = 1.0
_OF_INTERVAL, _RARER = 1 / 16, 4  # of the time that its last chunks took to come; and so much less often at most


class Ended(Exception):
    """The daemon ended the call before it was finished."""


class Stream:
    """Sends until the arena is empty and was asked to finish. One `run` per call."""

    def __init__(
        self,
        call: Any,
        arena: Arena,
        finishing: asyncio.Event,
        on_ack: Callable[[], None],
        target_died: Callable[[], bool],
        looked: Callable[[], None] = lambda: None,
        arenas: Callable[[], int] = lambda: 1,
        rounds: Rounds | None = None,
    ) -> None:
        """`call`: a stream-stream call of grpc.aio. `on_ack` gets each progress, `looked` each look at the arena.
        `arenas`: how many are drained now. `rounds`: in which they are looked at together.
        """
        self._call = call
        self._arena = arena
        self._finishing = finishing
        self._on_ack = on_ack
        self._credit = 0
        self._sent: deque[tuple[int, Batch]] = deque()  # message, what it held
        self._messages = 0
        self._came = (time.monotonic(),) * 2  # the last two messages, or when it began; monotonic seconds
        self._news = asyncio.Event()  # an ack, or the wish to finish
        self._target_died = target_died
        self._looked = looked
        self._arenas = arenas
        self._rounds = rounds or Rounds()

    async def run(self) -> None:
        """Returns when the daemon has taken Finish. Raises Ended, or grpc.RpcError."""
        incarnation, epoch = self._arena.key
        oldest, newest = VERSIONS
        await self._write(
            open=pb.IngestOpen(version_min=oldest, version_max=newest, incarnation=incarnation, epoch=epoch)
        )
        opened = await self._reply()
        self._credit = opened.credit_bytes
        if opened.finished:
            return
        receiver = asyncio.create_task(self._receive())
        receiver.add_done_callback(lambda _task: self._news.set())
        try:
            await self._send_all(receiver)
            await self._finish()
            await receiver
        finally:
            receiver.cancel()
            await asyncio.wait([receiver])

    async def _send_all(self, receiver: asyncio.Task[None]) -> None:
        """Send until the arena is empty, everything is acked, and the target writes nothing more to it."""
        while True:
            if receiver.done():
                receiver.result()  # raises why
                raise Ended("the daemon says that it is finished before we are")
            last = self._finishing.is_set()
            batch = self._arena.batch(min(self._credit, BATCH_BYTES_MAX), last=last)
            self._looked()
            if batch is not None:
                await self._send(batch)
            elif last and not self._sent:
                return
            else:
                await self._pause()

    async def _send(self, batch: Batch) -> None:
        self._messages += 1
        self._came = (self._came[1], time.monotonic())
        self._credit -= len(batch.data)
        self._sent.append((self._messages, batch))
        await self._write(chunks=pb.IngestChunks(message=self._messages, data=batch.data))

    async def _finish(self) -> None:
        lost = [
            pb.IngestLoss(stage=stage, reason=reason, count=count)
            for stage, reason, count in self._arena.losses()
            if count
        ]
        await self._write(
            finish=pb.IngestFinish(lost=lost, recorded=self._arena.recorded(), target_died=self._target_died())
        )

    async def _receive(self) -> None:
        """Take acks until the last reply."""
        while True:
            reply = await self._reply()
            self._credit += reply.credit_bytes
            while self._sent and self._sent[0][0] <= reply.acked:
                # What was refused is counted by the daemon; sent once more it would be refused again.
                self._arena.stored(self._sent.popleft()[1].indices)
                self._on_ack()
            self._news.set()
            if reply.finished:
                return

    async def _pause(self) -> None:
        """Wait for an ack, for the wish to finish, or for something in the arena."""
        self._rounds.begin(self)
        try:
            await self._news.wait()
        finally:
            self._rounds.end(self)
        self._news.clear()

    @property
    def pause_seconds(self) -> float:
        """Between two looks at the arena."""
        if self._arena.filled > _FILLS_FAST:
            return POLL_SECONDS_MIN
        since = time.monotonic() - self._came[0]
        if not self._messages and since < _WAITED_FOR_SECONDS:  # the first event, by who began the recording
            return POLL_SECONDS_MAX
        usual = POLL_SECONDS_MAX * (1 if self._arenas() < MANY_ARENAS else 2)
        return min(max(usual, since * _OF_INTERVAL), usual * _RARER)

    def look(self) -> bool:
        """Tend the arena; whether something waits there that could be sent."""
        ready = self._arena.has_sealed()
        self._looked()
        return ready and self._credit > 0

    def wake(self) -> None:
        """Look at once: the wish to finish has come."""
        self._news.set()

    async def _write(self, **part: Any) -> None:
        await self._call.write(pb.IngestRequest(**part))

    async def _reply(self) -> pb.IngestReply:
        reply = await self._call.read()
        if not isinstance(reply, pb.IngestReply):  # grpc.aio.EOF
            raise Ended("the daemon ended the stream")
        return reply
