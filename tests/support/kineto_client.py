"""A client of libkineto's daemon mode that misbehaves on demand, over real sockets.

It lives in the test's own process, so to the daemon it is that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from profd.sources.kineto import wire

IDLE, TRACING = 3, 1
Behaviour = Callable[["KinetoClient", dict[str, str]], None]


def config_of(datagram: bytes) -> str | None:
    """The config text in a reply of `wire.reply`; None if it is not one."""
    if len(datagram) < wire.HEADER_BYTES:
        return None
    size, _ = struct.unpack_from("=Q32s", datagram)
    payload = datagram[wire.HEADER_BYTES :]
    return payload.decode("ascii", "replace") if size == len(payload) else None


class KinetoClient:
    """One bound client socket. `configs` collects every config it was given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = str(directory / f"{wire.CLIENT_PREFIX}{uuid.uuid4()}")
        self.daemon = str(directory / wire.DAEMON_NAME)
        self.mask = IDLE
        self.configs: list[dict[str, str]] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> KinetoClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self.daemon)

    def poll(self, mask: int | None = None, pids: tuple[int, ...] | None = None) -> None:
        """Ask once; the pids in the message are only a claim."""
        claimed = (os.getpid(),) if pids is None else pids
        self.send(wire.poll(self.mask if mask is None else mask, 0, claimed))

    def poll_until_taken(self, tries: int) -> None:
        """As libkineto sends: again, after twice the pause, while the queue is full."""
        for number in range(tries):
            with contextlib.suppress(BlockingIOError):
                self.poll()
                return
            time.sleep(0.01 * 2**number)
        raise AssertionError("libkineto would have given this poll up")

    def read(self) -> str | None:
        """The oldest reply's config text, None if no reply waits."""
        try:
            return config_of(self.socket.recv(1 << 16))
        except BlockingIOError:
            return None

    async def ask(self, seconds: float = 60.0) -> str:
        """Poll until a reply comes: on a busy machine the daemon rightly drops polls that waited too long."""
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(BlockingIOError):  # its queue is full: try again, as libkineto does
                    self.poll()
                for _ in range(10):
                    await asyncio.sleep(0.01)
                    text = self.read()
                    if text is not None:
                        return text

    async def run(self, behaviour: Behaviour, period: float = 0.05) -> None:
        """Poll for ever and act on each config, as libkineto's thread does."""
        while True:
            with contextlib.suppress(BlockingIOError):
                self.poll()
            await asyncio.sleep(period)
            text = self.read()
            if text:
                config = dict(line.split("=", 1) for line in text.splitlines())
                self.configs.append(config)
                behaviour(self, config)


def trace_path(config: dict[str, str], pid: int | None = None) -> Path:
    """Where libkineto would write: the pid goes before `.json`."""
    path = Path(config["ACTIVITIES_LOG_FILE"])
    return path.with_name(f"{path.stem}_{os.getpid() if pid is None else pid}.json")


def trace_bytes(config: dict[str, str], *, events: int = 1, window_ms: float | None = None) -> bytes:
    """A trace as libkineto lays it out, with the window's labels."""
    window = float(config["ACTIVITIES_DURATION_MSECS"]) if window_ms is None else window_ms
    start = 1000.0
    spans = [
        {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 1, "ts": start + i, "dur": 0.5}
        for i in range(events)
    ]
    labels = {"ph": "M", "name": "process_labels", "ts": start, "pid": 1, "tid": 0, "args": {"labels": "CPU"}}
    end = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": start + window * 1000}
    whole = {
        "schemaVersion": 1,
        "trace_id": config["REQUEST_TRACE_ID"],
        "baseTimeNanoseconds": 1790857026000000000,
        "traceEvents": [*spans, labels, end],
        "traceName": str(trace_path(config)),
    }
    return json.dumps(whole, indent=2).encode()


def write_trace(_: KinetoClient, config: dict[str, str]) -> None:
    """The good behaviour: `.tmp`, then rename."""
    final = trace_path(config)
    part = final.with_name(final.name + ".tmp")
    part.write_bytes(trace_bytes(config))
    part.rename(final)
