"""What the door before gRPC costs: calls and streams straight to a server and through the door, in turn.

`python -m bench.door`; `python -m bench.door FOLDER` is its server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
from profd.rpc.door import Entrance

_CHUNK = bytes(512 * 1024)
_CALLS, _CHUNKS, _ROUNDS = 3000, 400, 5
_TICKS = os.sysconf("SC_CLK_TCK")


async def _serve(folder: Path) -> None:
    async def now(request: bytes, context: object) -> bytes:
        return b""

    async def down(request: bytes, context: object) -> AsyncIterator[bytes]:
        for _ in range(int(request)):
            yield _CHUNK

    async def up(requests: AsyncIterator[bytes], context: object) -> bytes:
        return str(sum([len(piece) async for piece in requests])).encode()

    server = grpc.aio.server()
    handlers = {
        "Now": grpc.unary_unary_rpc_method_handler(now),
        "Down": grpc.unary_stream_rpc_method_handler(down),
        "Up": grpc.stream_unary_rpc_method_handler(up),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Door", handlers),))
    server.add_insecure_port(f"unix:{folder / 'straight'}")
    await server.start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "door"))
    listener.listen(16)
    door = Entrance(str(folder / "straight"))
    door.listen(listener)
    print("ready", flush=True)
    await server.wait_for_termination()
    door.close(0)


def _calls(channels: dict[str, grpc.Channel]) -> None:
    took: dict[str, list[float]] = {name: [] for name in channels}
    for _ in range(_CALLS):
        for name, channel in channels.items():
            begin = time.perf_counter_ns()
            channel.unary_unary("/bench.Door/Now", None, None)(b"")
            took[name].append((time.perf_counter_ns() - begin) / 1e3)
    for name, times in took.items():
        print(f"call, {name}: {statistics.median(times):.0f} us (median), {min(times):.0f} us (least)")


def _down(channel: grpc.Channel) -> int:
    return sum(len(piece) for piece in channel.unary_stream("/bench.Door/Down", None, None)(str(_CHUNKS).encode()))


def _up(channel: grpc.Channel) -> int:
    return int(channel.stream_unary("/bench.Door/Up", None, None)(iter([_CHUNK] * _CHUNKS)))


def _streams(kind: str, stream: Callable[[grpc.Channel], int], channels: dict[str, grpc.Channel], pid: int) -> None:
    best: dict[str, float] = dict.fromkeys(channels, 0.0)
    cpu: list[float] = []
    for _ in range(_ROUNDS):
        for name, channel in channels.items():
            begin, before = time.perf_counter(), _door_seconds(pid)
            size = stream(channel) / 1e9
            best[name] = max(best[name], size / (time.perf_counter() - begin))
            if name == "door":
                cpu.append((_door_seconds(pid) - before) / size)
    rates = ", ".join(f"{name} {rate:.2f} GB/s" for name, rate in best.items())
    print(f"{kind}: {rates} (best of {_ROUNDS}); the door's thread {min(cpu):.2f} s of CPU a GB")


def _door_seconds(pid: int) -> float:
    """CPU time of the door's thread."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "profd-door":
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / _TICKS
    raise RuntimeError("there is no door")


def _run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([sys.executable, "-m", "bench.door", folder], stdout=subprocess.PIPE, text=True)
        try:
            if server.stdout is None or server.stdout.readline() != "ready\n":
                raise RuntimeError("the server did not start")
            options: list[tuple[str, Any]] = [
                ("grpc.default_authority", "localhost"),
                ("grpc.max_receive_message_length", -1),
            ]
            channels = {
                name: grpc.insecure_channel(f"unix:{folder}/{name}", options=options) for name in ("straight", "door")
            }
            _calls(channels)
            _streams("to the client", _down, channels, server.pid)
            _streams("from the client", _up, channels, server.pid)
            print(f"load {os.getloadavg()[0]:.1f}")
        finally:
            server.kill()
            server.communicate()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_serve(Path(sys.argv[1])))
    else:
        _run()
