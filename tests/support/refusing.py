"""A daemon that only refuses: what a hostile program costs the host, apart from what it costs profd.

    python -m tests.support.refusing DIRECTORY PORT

It has the sockets of a daemon in that directory, and metrics at that port of loopback. Whoever connects gets a token,
every call RESOURCE_EXHAUSTED, every datagram and every agent nothing. It says `ready`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from profd.sources.kineto import wire

_BUSY = b"HTTP/1.0 503 Busy\r\nContent-Length: 0\r\n\r\n"


class _Refusing(grpc.GenericRpcHandler):
    def service(self, handler_call_details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(requests: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "this is a stub")


def _bound(path: Path, kind: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    path.chmod(0o666)
    sock.setblocking(False)
    return sock


async def _answer(sock: socket.socket, said: bytes) -> None:
    sock.listen(128)
    loop = asyncio.get_running_loop()
    while True:
        other, _ = await loop.sock_accept(sock)
        with other, suppress(OSError):  # it did not wait
            other.send(said, socket.MSG_NOSIGNAL)


async def _drop(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await loop.sock_recv(sock, 65536)


async def _scraped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_BUSY)
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def _serve(folder: Path, port: int) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Refusing(),))
    server.add_insecure_port(f"unix:{folder / 'profd.sock'}")
    await server.start()
    (folder / "profd.sock").chmod(0o666)
    kineto = folder / "kineto"
    kineto.mkdir()
    kineto.chmod(0o1777)
    metrics = await asyncio.start_server(_scraped, "127.0.0.1", port)
    async with metrics, asyncio.TaskGroup() as tasks:
        tasks.create_task(
            _answer(_bound(folder / "control.sock", socket.SOCK_SEQPACKET), json.dumps({"token": "none"}).encode())
        )
        tasks.create_task(_answer(_bound(folder / "agent.sock", socket.SOCK_SEQPACKET), b""))
        tasks.create_task(_drop(_bound(kineto / wire.DAEMON_NAME, socket.SOCK_DGRAM)))
        print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
