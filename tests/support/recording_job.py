"""A process that records by itself, without an agent: its arena's descriptor comes over a socket.

Run as a script: `recording_job.py FD ARENA_BYTES PER_BURST PAUSE_SECONDS EPOCH`. It records bursts until a line
comes on stdin, stops recording, prints its totals as JSON, and waits for the end of stdin.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class RecordingJob:
    """The process, from the outside."""

    def __init__(self, process: subprocess.Popen[str], fd: int, incarnation: int) -> None:
        self.process = process
        self.fd = fd  # of the arena; the caller's
        self.incarnation = incarnation

    def stop(self) -> dict[str, int]:
        """Stop recording; what it has recorded and lost."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        totals: dict[str, int] = json.loads(self.process.stdout.readline())
        return totals


@contextmanager
def recording_job(
    arena_bytes: int = 16 << 20, per_burst: int = 300, pause_seconds: float = 0.002, epoch: int = 7
) -> Iterator[RecordingJob]:
    """A process that records now. It is killed at the end."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            arguments = [str(value) for value in (theirs.fileno(), arena_bytes, per_burst, pause_seconds, epoch)]
            process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        try:
            ours.settimeout(60)
            data, fds, _, _ = socket.recv_fds(ours, 64, 1)
            yield RecordingJob(process, fds[0], int(data, 16))
        finally:
            process.kill()
            process.communicate()


def _main(link: int, arena_bytes: int, per_burst: int, pause_seconds: float, epoch: int) -> None:
    from profclient import _recorder, record_function

    recorder: Any = _recorder
    fd = recorder.arm(arena_bytes=arena_bytes, epoch=epoch)
    with socket.socket(fileno=link) as sock:
        socket.send_fds(sock, [f"{recorder.incarnation():016x}".encode()], [fd])

    def bursts(name: str) -> None:
        while not stop.is_set():
            for number in range(per_burst // 2):
                with record_function(name), record_function(f"{name} {number % 50}"):
                    pass
            if pause_seconds:
                time.sleep(pause_seconds)

    stop = threading.Event()
    other = threading.Thread(target=bursts, args=("other",))
    other.start()
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(per_burst // 2):
            with record_function("main"), record_function("inner"):
                pass
        if pause_seconds:
            time.sleep(pause_seconds)
    stop.set()
    other.join()
    recorder.disarm()
    print(json.dumps(recorder.totals()), flush=True)
    sys.stdin.readline()  # the line that stopped us
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
