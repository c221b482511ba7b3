"""A poll of libkineto's, from its first try to its answer, while another process floods the socket."""

from __future__ import annotations

import contextlib
import select
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from profd.sources.kineto import wire

from bench.live import profd
from bench.measure import Row
from tests.support.kineto_client import KinetoClient

POLLS = 300
PERIOD_SECONDS = 0.03  # below what one process may ask
ANSWER_SECONDS = 0.09  # then libkineto gives this poll up
TRIES = 10  # of sending one, with pauses of 10 ms that double: libkineto's own
BAR_SECONDS = 0.050

FLOOD = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.setblocking(False)
message = bytes.fromhex(sys.argv[3])
while True:
    try:
        s.sendto(message, sys.argv[2])
    except OSError:
        pass
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    for what, message in (("nobody else", None), ("polls", wire.poll(3, 0, ())), ("garbage", b"x" * 64)):
        with profd() as live, KinetoClient(live.folder / "k") as client, _flooded(client, message):
            client.poll()
            time.sleep(1.0)
            _drain(client)
            took = sorted(_poll(client) for _ in range(POLLS))
        lost = sum(seconds == float("inf") for seconds in took)
        p99 = took[int(0.99 * POLLS) - 1]
        yield Row(
            "polling",
            f"a poll beside a flood of {what}: p99 of {POLLS}",
            f"{p99 * 1e3:.1f} ms",
            bar=f"<= {BAR_SECONDS * 1e3:g} ms",
            met=p99 <= BAR_SECONDS,
            note=f"p50 {statistics.median(took) * 1e3:.1f} ms; not answered: {lost}",
        )


@contextlib.contextmanager
def _flooded(client: KinetoClient, message: bytes | None) -> Iterator[None]:
    if message is None:
        yield
        return
    address = Path(client.directory) / f"{wire.CLIENT_PREFIX}{uuid.uuid4()}"
    command = [sys.executable, "-c", FLOOD, str(address), client.daemon, message.hex()]
    flooder = subprocess.Popen(command)
    try:
        yield
    finally:
        flooder.kill()
        flooder.wait()


def _poll(client: KinetoClient) -> float:
    """Seconds until the answer; infinite where none came."""
    time.sleep(PERIOD_SECONDS)
    began = time.perf_counter()
    for number in range(TRIES):
        try:
            client.poll()
            break
        except BlockingIOError:
            time.sleep(0.01 * 2**number)
    answered, _, _ = select.select([client.socket], [], [], ANSWER_SECONDS)
    took = time.perf_counter() - began
    _drain(client)
    return took if answered else float("inf")


def _drain(client: KinetoClient) -> None:
    while client.read() is not None:
        pass
