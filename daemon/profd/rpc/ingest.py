"""IngestService: chunks of events from streamers, and from every program that speaks docs/wire-format.md.

A call carries one (incarnation, epoch). One message of it is in our hands at a
time: the next is read when the one before is written, so the memory of a call
is its message and what its credit lets gRPC hold.
"""

# ruff: noqa: N802 - the names are gRPC's

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final

from profproto.v1 import ingest_pb2 as pb
from profproto.v1 import ingest_pb2_grpc

from profd.attached.ingest.intake import Ingest, Intake
from profd.attached.ingest.pushed import Pushed
from profd.decode.chunk_header import VERSIONS
from profd.errors import BadInput, Denied, Unavailable
from profd.fairness.few import Few
from profd.kernel import nobody
from profd.limits import (
    INGEST_CHUNK_BYTES_MAX,
    INGEST_CREDIT_BYTES,
    INGEST_CREDITS_BYTES,
    INGEST_LOSSES_MAX,
    INGEST_OPENING,
    INGEST_OPENING_PER_UID,
    INGEST_PUSHED_IDLE_SECONDS,
)
from profd.trust import caller as callers

OPEN_SECONDS: Final = 10.0  # from the call to its first message


class IngestServicer(ingest_pb2_grpc.IngestServiceServicer):
    """The calls that stream now: one for each process that is expected, or that pushes."""

    def __init__(self, ingest: Ingest, pushed: Pushed) -> None:
        self._ingest = ingest
        self._pushed = pushed
        self._calls = 0
        self._opening = Few(INGEST_OPENING_PER_UID, INGEST_OPENING)

    async def Stream(self, requests: AsyncIterator[pb.IngestRequest], context: object) -> AsyncIterator[pb.IngestReply]:
        """Open, then Chunks within the credit, then Finish."""
        async with self._opening.place(callers.current().uid):
            opened = await _opened(requests)
        version = _agreed(opened)
        if self._ingest.has_finished(opened.incarnation, opened.epoch):
            # The reply to its Finish was lost on the way.
            again = pb.IngestReply(version=version, finished=True)
            if opened.label:
                again.trace = await self._pushed.became(callers.current(), opened.incarnation, opened.epoch)
            yield again
            return
        async with contextlib.aclosing(self._taken(opened, version, requests)) as replies:
            async for reply in replies:
                yield reply

    async def _taken(
        self, opened: pb.IngestOpen, version: int, requests: AsyncIterator[pb.IngestRequest]
    ) -> AsyncGenerator[pb.IngestReply, None]:
        caller = callers.current()
        with contextlib.ExitStack() as stack:
            push = None
            if opened.label:
                if caller.uid == nobody.STREAMER:
                    raise Denied("a streamer sends what it was given to drain, and nothing else")
                push = await self._pushed.open(caller, opened.incarnation, opened.epoch, opened.label)
                stack.enter_context(push.call())
            intake = push.intake if push is not None else self._ingest.find(opened.incarnation, opened.epoch)
            intake.require(caller)
            ended = stack.enter_context(_holding(intake))
            credit = stack.enter_context(self._credit())
            yield pb.IngestReply(version=version, credit_bytes=credit)
            # What a capture records may be silent for long.
            idle_seconds = INGEST_PUSHED_IDLE_SECONDS if push is not None else None
            async with (
                contextlib.aclosing(_until(ended, requests, idle_seconds)) as wanted,
                contextlib.aclosing(_served(intake, wanted, credit)) as replies,
            ):
                try:
                    async for reply in replies:
                        if reply.finished and push is not None:
                            reply.trace = await push.stored()
                        yield reply
                except _Stalled:
                    if push is not None and idle_seconds is not None:
                        raise await push.stalled(idle_seconds) from None

    @contextlib.contextmanager
    def _credit(self) -> Iterator[int]:
        """The credit of one more call: a message at least, however many calls there are."""
        self._calls += 1
        try:
            yield max(INGEST_CHUNK_BYTES_MAX, min(INGEST_CREDIT_BYTES, INGEST_CREDITS_BYTES // self._calls))
        finally:
            self._calls -= 1


async def _opened(requests: AsyncIterator[pb.IngestRequest]) -> pb.IngestOpen:
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            first = await anext(requests, None)
    except TimeoutError:
        raise BadInput(f"no IngestOpen came within {OPEN_SECONDS:g} s") from None
    if first is None or first.WhichOneof("part") != "open":
        raise BadInput("a stream begins with IngestOpen")
    return first.open


def _agreed(opened: pb.IngestOpen) -> int:
    """The version of the wire format to speak. Raises Unavailable."""
    oldest, newest = VERSIONS
    if opened.version_min > newest or opened.version_max < oldest:
        raise Unavailable(
            f"this profd speaks versions {oldest} to {newest} of the wire format, "
            f"the streamer {opened.version_min} to {opened.version_max}; upgrade the older of them"
        )
    return min(newest, opened.version_max)


@contextlib.contextmanager
def _holding(intake: Intake) -> Iterator[asyncio.Event]:
    """The event of one call per process, set when the call is to end."""
    ended = asyncio.Event()
    intake.hold(ended)
    try:
        yield ended
    finally:
        intake.release(ended)


class _Stalled(Exception):
    """Nothing came for too long."""


async def _until(
    ended: asyncio.Event, requests: AsyncIterator[pb.IngestRequest], idle_seconds: float | None
) -> AsyncGenerator[pb.IngestRequest, None]:
    """The requests of a call. Raises Unavailable once it is to end, and _Stalled."""
    ending = asyncio.ensure_future(ended.wait())
    try:
        while True:
            reading = asyncio.ensure_future(_read(requests))
            try:
                await asyncio.wait((ending, reading), timeout=idle_seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not reading.done():
                    reading.cancel()
            if ended.is_set():
                raise Unavailable("the capture of this process is over, or its streamer has connected again")
            if not reading.done():
                raise _Stalled
            request = reading.result()
            if request is None:
                return
            yield request
    finally:
        ending.cancel()


async def _read(requests: AsyncIterator[pb.IngestRequest]) -> pb.IngestRequest | None:
    return await anext(requests, None)


async def _served(
    intake: Intake, requests: AsyncIterator[pb.IngestRequest], credit: int
) -> AsyncGenerator[pb.IngestReply, None]:
    """An ack for each message, which gives the message's credit back."""
    expected = 1
    async for request in requests:
        part = request.WhichOneof("part")
        if part == "finish":
            finish = request.finish
            lost = [(loss.stage, loss.reason, loss.count) for loss in finish.lost[:INGEST_LOSSES_MAX]]
            await intake.finish(lost, finish.recorded)
            yield pb.IngestReply(acked=expected - 1, finished=True)
            return
        if part != "chunks" or request.chunks.message != expected:
            raise BadInput(f"message {expected} of chunks was to come; a client that lost count opens a new stream")
        data = request.chunks.data
        if len(data) > min(credit, INGEST_CHUNK_BYTES_MAX):
            raise BadInput(
                f"a message of {len(data)} bytes; it may have {INGEST_CHUNK_BYTES_MAX}, and never more than the credit"
            )
        rejected = await intake.take(memoryview(data))
        yield pb.IngestReply(
            acked=expected,
            credit_bytes=len(data),
            rejected=[pb.IngestRejected(index=index, reason=reason) for index, reason in rejected],
        )
        expected += 1
