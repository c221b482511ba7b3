"""From a descriptor to chunks: order, back-pressure, errors and givers-up."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from profd.errors import BadInput, Exhausted
from profd.limits import RPC_CHUNK_BYTES
from profd.rpc import stream
from profd.rpc.stream import Pipe, streamed

from tests.support.descriptors import nothing_left_open


def write_all(fd: int, data: bytes) -> None:
    """As a job does: blocking, in another thread."""
    with os.fdopen(os.dup(fd), "wb") as out:
        out.write(data)


async def test_all_bytes_in_order_and_nothing_left_open() -> None:
    data = os.urandom(3 * RPC_CHUNK_BYTES + 17)
    with nothing_left_open():

        async def produce(fd: int) -> None:
            await asyncio.to_thread(write_all, fd, data)

        chunks = [chunk async for chunk in streamed(produce)]
        assert b"".join(chunks) == data
        assert max(map(len, chunks)) <= RPC_CHUNK_BYTES


async def test_nothing_written() -> None:
    async def produce(fd: int) -> int:
        return 0

    assert [chunk async for chunk in streamed(produce)] == []


async def test_error_comes_after_what_was_written() -> None:
    async def produce(fd: int) -> None:
        os.write(fd, b"begin")
        raise BadInput("row 7 is wrong")

    async with contextlib.aclosing(streamed(produce)) as chunks:
        assert await anext(chunks) == b"begin"
        with pytest.raises(BadInput, match="row 7"):
            await anext(chunks)


async def test_writer_waits_for_the_reader() -> None:
    written = 0

    async def produce(fd: int) -> None:
        nonlocal written
        os.set_blocking(fd, False)
        while written < 4 * RPC_CHUNK_BYTES:
            try:
                written += os.write(fd, b"x" * 65536)
            except BlockingIOError:
                await asyncio.sleep(0)

    async with contextlib.aclosing(streamed(produce)) as chunks:
        await anext(chunks)
        for _ in range(1000):  # as long as it likes: it gets no further than the pipe holds
            await asyncio.sleep(0)
        assert written <= 3 * RPC_CHUNK_BYTES
        assert sum([len(chunk) async for chunk in chunks]) > RPC_CHUNK_BYTES


async def test_closing_early_cancels_the_producer() -> None:
    ended = asyncio.Event()
    with nothing_left_open():

        async def produce(fd: int) -> None:
            os.write(fd, b"x")
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with contextlib.aclosing(streamed(produce)) as chunks:
            await anext(chunks)
        assert ended.is_set()


async def test_reader_that_takes_nothing_loses_the_stream() -> None:
    cancelled = asyncio.Event()

    async def produce(fd: int) -> None:
        os.write(fd, b"x")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with contextlib.aclosing(streamed(produce, stall_seconds=0.01)) as chunks:
        await anext(chunks)
        await cancelled.wait()  # the worker is free again while the client still sleeps
        with pytest.raises(Exhausted, match="nothing was read"):
            await anext(chunks)


async def test_pipe_reports_its_end() -> None:
    pipe = Pipe()
    os.write(pipe.writer, b"x")
    pipe.close_writer()
    pipe.close_writer()
    assert [await pipe.read(), await pipe.read()] == [b"x", b""]
    pipe.close()


async def test_a_slow_reader_is_given_up_sooner_where_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "STREAM_STALLS_CROWDED_SECONDS", 0.01)
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.005)
    cancelled = asyncio.Event()

    async def produce(fd: int) -> None:
        os.write(fd, b"x")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with contextlib.aclosing(streamed(produce, crowded=lambda: True)) as chunks:
        await anext(chunks)
        await cancelled.wait()
        with pytest.raises(Exhausted, match="others for its worker"):
            await anext(chunks)
