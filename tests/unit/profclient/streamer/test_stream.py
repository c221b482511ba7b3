"""The streamer's side of a call, against a daemon that acks when it likes and breaks off when it likes."""

from __future__ import annotations

import asyncio
import os
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient._recorder import Drainer
from profclient.streamer import stream as module
from profclient.streamer.arena import Arena, Batch
from profclient.streamer.rounds import Rounds
from profclient.streamer.stream import MANY_ARENAS, Ended, Stream
from profd.attached.ingest.chunk import split_untrusted
from profproto.v1 import ingest_pb2 as pb

from tests.support import arena_writer as writer
from tests.support.ingest import arena_chunks


class FakeDaemon:
    """A call of grpc.aio and the daemon behind it; checks whatever is sent."""

    def __init__(self, arena_fd: int, dice: random.Random, credit: int, messages: int | None) -> None:
        """`messages`: after so many the connection breaks."""
        self.chunks: list[tuple[int, int]] = []  # acked
        self.finish: pb.IngestFinish | None = None
        self._reader = Drainer(arena_fd)
        self._dice = dice
        self._credit = credit
        self._left = messages
        self._replies: asyncio.Queue[pb.IngestReply | None] = asyncio.Queue()
        self._unacked: list[tuple[int, bytes]] = []
        self._expected = 1

    async def write(self, request: pb.IngestRequest) -> None:
        await asyncio.sleep(0)
        part = request.WhichOneof("part")
        if part == "open":
            self._replies.put_nowait(pb.IngestReply(version=1, credit_bytes=self._credit))
        elif part == "finish":
            assert not self._unacked
            self.finish = request.finish
            self._replies.put_nowait(pb.IngestReply(finished=True))
        else:
            self._take(request.chunks)

    async def read(self) -> pb.IngestReply | None:
        return await self._replies.get()

    def _take(self, chunks: pb.IngestChunks) -> None:
        assert chunks.message == self._expected
        assert chunks.data
        self._expected += 1
        self._credit -= len(chunks.data)
        assert self._credit >= 0, "more was sent than the daemon allowed"
        self._unacked.append((chunks.message, chunks.data))
        self._nothing_is_freed_before_its_ack()
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._replies.put_nowait(None)
                return
        if self._dice.random() < 0.5:
            self._ack(self._dice.randint(1, len(self._unacked)))
        else:
            asyncio.get_running_loop().call_later(0.001, self._ack_the_rest)

    def _nothing_is_freed_before_its_ack(self) -> None:
        waiting = {(stream, sequence) for _, stream, sequence in self._reader.sealed() + self._reader.open_chunks()}
        for _, data in self._unacked:
            assert {(chunk.stream, chunk.sequence) for chunk in split_untrusted(memoryview(data))} <= waiting

    def _ack_the_rest(self) -> None:
        if self._unacked and self._left != 0:
            self._ack(len(self._unacked))

    def _ack(self, count: int) -> None:
        acked, self._unacked = self._unacked[:count], self._unacked[count:]
        for _, data in acked:
            self.chunks += [(chunk.stream, chunk.sequence) for chunk in split_untrusted(memoryview(data))]
        freed = sum(len(data) for _, data in acked)
        self._credit += freed
        self._replies.put_nowait(pb.IngestReply(acked=acked[-1][0], credit_bytes=freed))


async def run(daemon: FakeDaemon, arena: Arena) -> None:
    finishing = asyncio.Event()
    finishing.set()
    stream = Stream(daemon, arena, finishing, lambda: None, target_died=lambda: True)
    async with asyncio.timeout(120):
        await stream.run()


@given(
    streams=st.integers(1, 3),
    each=st.integers(0, 6),
    unsealed=st.integers(0, 2),
    credit=st.integers(400, 3000),
    breaks=st.lists(st.integers(1, 4), max_size=3),
    seed=st.integers(0, 1000),
)
def test_property_all_arrives_within_the_credit_whatever_breaks(
    streams: int, each: int, unsealed: int, credit: int, breaks: list[int], seed: int
) -> None:
    chunks = list(arena_chunks(streams, each))
    for chunk in chunks[len(chunks) - min(unsealed, len(chunks)) :]:
        chunk.state = writer.OPEN
    sealed = [chunk for chunk in chunks if chunk.state == writer.SEALED]
    fd = writer.arena_fd(chunks, recording=0, recorded=8 * len(sealed), lost=(5,))
    arena = Arena(os.dup(fd), None)
    acked: list[tuple[int, int]] = []
    finish = None
    for messages in [*breaks, None]:
        daemon = FakeDaemon(fd, random.Random(seed), credit, messages)
        try:
            asyncio.run(run(daemon, arena))
        except Ended:
            arena.again()
        acked += daemon.chunks
        finish = daemon.finish
        if finish is not None:
            break
    arena.close()
    os.close(fd)
    assert sorted(set(acked)) == sorted((chunk.stream, chunk.sequence) for chunk in chunks)
    assert len(acked) == len(set(acked)), "what was acked was sent again"
    assert finish is not None
    assert finish.recorded == 8 * len(chunks)
    assert [(loss.stage, loss.reason, loss.count) for loss in finish.lost] == [("target", "arena_full", 5)]
    assert finish.target_died


async def test_daemon_that_says_finished_at_once_is_believed() -> None:
    class Done(FakeDaemon):
        async def write(self, request: pb.IngestRequest) -> None:
            self._replies.put_nowait(pb.IngestReply(version=1, finished=True))

    fd = writer.arena_fd([], recording=0)
    arena = Arena(os.dup(fd), None)
    await run(Done(fd, random.Random(0), 0, None), arena)
    arena.close()
    os.close(fd)


async def test_call_that_ends_while_nothing_is_sent_is_noticed() -> None:
    fd = writer.arena_fd([])
    arena = Arena(os.dup(fd), None)
    daemon = FakeDaemon(fd, random.Random(0), 1000, None)
    stream = Stream(daemon, arena, asyncio.Event(), lambda: None, target_died=lambda: False)
    task = asyncio.create_task(stream.run())
    daemon._replies.put_nowait(pb.IngestReply(version=1))
    await asyncio.sleep(0)
    daemon._replies.put_nowait(None)
    with pytest.raises(Ended):
        await asyncio.wait_for(task, 120)
    arena.close()
    os.close(fd)


def test_many_arenas_that_fill_slowly_are_looked_at_less_often() -> None:
    arena: Any = SimpleNamespace(filled=0.0)
    drained: list[int] = []
    stream = Stream(None, arena, asyncio.Event(), lambda: None, lambda: False, arenas=lambda: len(drained))
    slow = stream.pause_seconds
    drained += range(MANY_ARENAS)
    assert stream.pause_seconds == slow, "the first event is waited for"
    stream._messages = 1
    assert stream.pause_seconds == 2 * slow
    arena.filled = 0.5
    assert stream.pause_seconds < slow
    arena.filled = 0.0
    drained.pop()
    assert stream.pause_seconds == slow


def test_an_arena_whose_chunks_take_long_to_come_is_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    arena: Any = SimpleNamespace(filled=0.0)
    stream = Stream(_Taking(), arena, asyncio.Event(), lambda: None, lambda: False)
    usual = stream.pause_seconds

    async def comes(after: float) -> None:
        now[0] += after
        await stream._send(Batch(b"", ()))

    now[0] += 0.9
    assert stream.pause_seconds == usual, "the first event is waited for, for a second"
    now[0] += 59.1
    assert stream.pause_seconds == 4 * usual
    asyncio.run(comes(0.0))
    assert stream.pause_seconds == 4 * usual, "the chunk took a minute to come"
    asyncio.run(comes(0.1))
    assert stream.pause_seconds == usual, "another one came soon after"
    now[0] += 0.7
    assert stream.pause_seconds == pytest.approx(0.8 / 16)
    arena.filled = 0.5
    assert stream.pause_seconds < usual


class _Taking:
    async def write(self, request: pb.IngestRequest) -> None:
        """Take it."""


class Quiet:
    """An arena that has something at the fifth look."""

    pause_seconds = 0.02

    def __init__(self) -> None:
        self.looks = 0
        self.woken = asyncio.Event()

    def look(self) -> bool:
        self.looks += 1
        return self.looks == 5

    def wake(self) -> None:
        self.woken.set()


class Damaged(Quiet):
    def look(self) -> bool:
        raise ValueError("a damaged arena")


async def test_streamer_looks_at_all_arenas_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on where a look fails."""
    loop, rounds, timers = asyncio.get_running_loop(), Rounds(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *given: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *given, **more)

    monkeypatch.setattr(loop, "call_at", counted)
    several, damaged = [Quiet() for _ in range(8)], Damaged()
    for waiting in [*several, damaged]:
        rounds.begin(waiting)
    for waiting in [*several, damaged]:
        await asyncio.wait_for(waiting.woken.wait(), 120)
    assert {waiting.looks for waiting in several} == {5}
    assert len([when for when in timers if when < loop.time() + 10]) < 2 * 5
    assert rounds._timer is None, "nobody waits"
