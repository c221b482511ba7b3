"""One program plain, then under captures of all its processes, one after the other until it ends."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from profproto.v1 import capture_pb2

from kindness import jobs
from kindness.asking import capture, connection
from kindness.daemons import Daemons
from kindness.ledger import Tally


def under_captures(
    found: Daemons, job: jobs.Job, tally: Tally, chance: random.Random, also: Callable[[], list[int]] = list
) -> None:
    """Capture a job and its children until it is over; `also`: processes that are no children of its any more."""
    gone = threading.Event()  # the daemon that is connected: it was killed, and its successor has other tokens

    def told(_: int, outcome: str, recorded: bool) -> None:
        tally.count(job.program, outcome, recorded)
        if outcome in ("UnreachableError", "DeniedError"):
            gone.set()

    def ask() -> None:
        while job.popen.returncode is None:
            gone.clear()
            with connection(found.socket) as daemon:
                while daemon is not None and job.popen.returncode is None and not gone.is_set():
                    capture(daemon, sorted({job.pid, *also()}), options(chance), told, children=True)
                    time.sleep(0.02)
            time.sleep(0.05)

    asker = threading.Thread(target=ask)
    asker.start()
    while not job.over():
        time.sleep(0.02)
    asker.join()
    tally.flush()


def alone(job: jobs.Job) -> None:
    """Until it is over."""
    while not job.over():
        time.sleep(0.02)


def options(chance: random.Random) -> capture_pb2.Options:
    """What is asked of programs that are not ours: every kind of recording, short windows."""
    asked = capture_pb2.Options(source="sdk", duration_ns=int(chance.choice((5, 20, 50, 100, 300)) * 1e6))
    asked.stacks = chance.random() < 0.95
    asked.c_calls = asked.stacks and chance.random() < 0.4
    asked.modules = chance.random() < 0.2
    asked.memory = chance.random() < 0.2
    asked.shapes = chance.random() < 0.3
    if chance.random() < 0.1:
        asked.sample_hz = 100
    return asked
