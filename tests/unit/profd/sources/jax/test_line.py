"""The way to a profiler server that says whatever it likes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest
from profd.sources.jax.line import LineLimits, Way, connected
from profd.sources.jax.service import Failure, Service, ServiceFailed

from tests.support import http2
from tests.support.waiting import PATIENCE_SECONDS, eventually

BEGIN = http2.frame(http2.SETTINGS) + http2.frame(http2.SETTINGS, 1)
KNOWN = b"\x88"  # `:status: 200`
CONNECT = """
import socket, sys
other = socket.socket(socket.AF_UNIX)
other.connect("\\0" + sys.argv[1])
print("there", flush=True)
other.recv(1)
"""


@contextlib.contextmanager
def sending(more: Callable[[], bytes]) -> Iterator[tuple[str, threading.Event]]:
    """The address of a server that says this behind its beginning, without end; what is set when it was cut off."""
    over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(BEGIN)
                with contextlib.suppress(OSError):
                    while True:
                        connection.sendall(more())
                over.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"ipv4:127.0.0.1:{listener.getsockname()[1]}", over
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_SECONDS)


async def asked(address: str) -> None:
    """One call."""
    service = Service(address)
    try:
        await service.connect(PATIENCE_SECONDS)
        await service.snapshot(PATIENCE_SECONDS)
    finally:
        await service.close()


async def test_a_header_block_of_too_many_fields_ends_the_connection() -> None:
    """GIVEN fields of one byte each, of which gRPC makes 4 KiB each, again and again."""
    big = b"\x40\x01a\x7f" + b"\xbd\x1e" + b"v" * 4028
    said = http2.frame(http2.HEADERS, http2.END_HEADERS, 3, big + b"\xbe" * 8000)
    with sending(lambda: said) as (address, over):
        with pytest.raises(ServiceFailed, match="it sends what no server of gRPC does") as failed:
            await asked(address)
        assert failed.value.failure is Failure.GONE
        await eventually(over.is_set)


async def test_a_server_that_never_stops_sending_is_cut_off_with_its_connection() -> None:
    said = http2.frame(http2.HEADERS, http2.END_HEADERS, 3, KNOWN) * 1000
    with sending(lambda: said) as (address, over):
        service = Service(address)
        await service.connect(PATIENCE_SECONDS)
        await service.close()
        await eventually(over.is_set)


async def test_what_is_no_http2_is_nobody_that_answers() -> None:
    with sending(lambda: b"220 mail.example.org ESMTP\r\n" * 100) as (address, over):
        service = Service(address)
        assert not await service.is_profiler(PATIENCE_SECONDS)
        await service.close()
        await eventually(over.is_set)


@contextlib.asynccontextmanager
async def led(allowed: LineLimits) -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """The ends of a line: a client's, and the server's."""
    client = socket.socket(socket.AF_UNIX)
    ours, server = socket.socketpair()
    way = Way()
    with client, ours, server:
        client.connect("\0" + way.target.partition(":")[2])
        await way.open(ours, allowed)
        ours.close()
        for end in (client, server):
            end.settimeout(PATIENCE_SECONDS)
        yield client, server
        way.close()


def received(end: socket.socket) -> bytes:
    """All of it, until the line has ended."""
    return b"".join(iter(lambda: end.recv(1 << 16), b""))


async def test_no_more_passes_in_a_second_than_is_allowed() -> None:
    """A PING is answered, and counts a little over ten times: of a hundred three pass behind the first frame."""
    few = LineLimits(rates=replace(LineLimits().rates, work=1e-6, work_burst=41.0))
    pings = [http2.frame(http2.PING, 0, 0, bytes([number]) * 8) for number in range(100)]
    allowed = http2.frame(http2.SETTINGS) + b"".join(pings[:3])
    async with led(few) as (client, server):
        await asyncio.to_thread(server.sendall, http2.frame(http2.SETTINGS) + b"".join(pings))
        came = b""
        while len(came) < len(allowed):
            came += await asyncio.to_thread(client.recv, 1 << 16)
        assert came == allowed
        client.shutdown(socket.SHUT_RDWR)  # the rest is nobody's
        assert await asyncio.to_thread(server.recv, 1) == b""


async def test_all_passes_both_ways_and_what_was_said_before_an_end_arrives() -> None:
    said = http2.frame(http2.SETTINGS) + b"".join(
        http2.frame(http2.DATA, 0, 1, bytes([number]) * 16_384) for number in range(200)
    )
    asked_for = bytes(range(256)) * 4096
    async with led(LineLimits()) as (client, server):
        heard: list[bytes] = []

        def answer() -> None:
            while sum(map(len, heard)) < len(asked_for):
                heard.append(server.recv(1 << 16))
            server.sendall(said)
            server.close()

        answering = asyncio.create_task(asyncio.to_thread(answer))
        await asyncio.to_thread(client.sendall, asked_for)
        assert await asyncio.to_thread(received, client) == said
        await answering
        assert b"".join(heard) == asked_for


async def test_another_process_that_knows_the_name_is_not_led_there() -> None:
    way = Way()
    name = way.target.partition(":")[2]
    ours, server = socket.socketpair()
    with subprocess.Popen([sys.executable, "-c", CONNECT, name], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"there\n"
        with socket.socket(socket.AF_UNIX) as client, ours, server:
            client.connect("\0" + name)
            await way.open(ours)
            client.sendall(b"of gRPC")
            server.settimeout(PATIENCE_SECONDS)
            assert await asyncio.to_thread(server.recv, 64) == b"of gRPC"
            with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
                late.connect("\0" + name)
            way.close()
        assert other.wait(PATIENCE_SECONDS) == 0


async def test_an_address_of_ipv6_is_reached() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError as error:
        pytest.skip(f"no IPv6 on the loopback: {error.strerror}")
    with listener, contextlib.closing(await connected(f"ipv6:[::1]:{listener.getsockname()[1]}")) as client:
        assert client.getpeername()[1] == listener.getsockname()[1]
