"""A control, Kineto on demand: PyTorch processes traced by libkineto again and again, which kills some of them.

What libkineto writes to a job's stderr is its own and is not judged. No job ends within a window: torch is known to
die of that (README.md), so each job is idle for a while before it is told to end.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profproto.v1 import capture_pb2

from kindness import jobs, place
from kindness.asking import capture, connection
from kindness.daemons import Daemons, daemons, killing
from kindness.ledger import Job, Kills, Ledger, Skipped, Tally

NAME: Final = "kineto"
_SLOTS: Final = 16
_KILLS: Final = (100, 300)  # captures that recorded between two
_LIFE_SECONDS: Final = (60.0, 300.0)
_QUIET_SECONDS: Final = 3.0  # after a trace that was picked up: its job no longer traces
_BUSY_SECONDS: Final = 0.3  # until it asks again, which tells the daemon that it is idle
_UNSURE_SECONDS: Final = 25.0  # after one of which it is not known


@dataclass
class Rig:
    """What its threads share."""

    found: Daemons
    ledger: Ledger
    tally: Tally
    over: threading.Event
    lock: threading.Lock

    def environment(self) -> dict[str, str]:
        """Of a job: libkineto asks every second, which is the most often it can."""
        config = place.ROOT / "deploy" / "libkineto.conf"
        directory = str(self.found.running.kineto_dir)
        traces = str(self.found.directory)
        return self.found.environment(
            KINETO_USE_DAEMON="1",
            KINETO_CONFIG=str(config),
            KINETO_IPC_SOCKET_DIR=directory,
            KINETO_ONDEMAND_TRACE_DIR=traces,
        )


def run(ledger: Ledger, deadline: float, seed: int, name: str = NAME) -> None:
    """Until `deadline` (of time.monotonic())."""
    try:
        import torch  # noqa: F401 - whether it is there
    except ImportError:
        ledger.add(Skipped(NAME, "all", "torch is not installed"))
        return
    chance = random.Random(seed)
    over = threading.Event()
    with daemons() as found:
        rig = Rig(found, ledger, Tally(ledger, NAME), over, threading.Lock())
        slots = [threading.Thread(target=_slot, args=(rig, random.Random(chance.random()))) for _ in range(_SLOTS)]
        for slot in slots:
            slot.start()
        killer = killing(found, chance, _KILLS, lambda: rig.tally.recorded, over, lambda: ledger.add(Kills(NAME, 1)))
        try:
            while time.monotonic() < deadline:
                time.sleep(max(0.0, min(10.0, deadline - time.monotonic())))
                with rig.lock:
                    rig.tally.flush()
        finally:
            over.set()
            for thread in (*slots, killer):
                thread.join()
            rig.tally.flush()


def _slot(rig: Rig, chance: random.Random) -> None:
    """One job after the other."""
    while not rig.over.wait(chance.uniform(0, 10)):
        program = chance.choice(("train", "ranges", "threads"))
        command: list[str | Path] = [sys.executable, place.PROGRAMS / "kineto_job.py", program]
        name = program
        if chance.random() < 0.3:
            command, name = jobs.attached(command), f"{program}, attached"
        life = chance.uniform(*_LIFE_SECONDS)
        job = jobs.start(
            name, command, rig.ledger.logs(NAME), rig.environment(), seconds=life + 600, quiet="", told=True
        )
        last = _trace(rig, job, life, chance)
        job.tell()
        while not job.over():
            time.sleep(0.1)
        harm = job.harm()
        rig.ledger.add(Job(NAME, name, harm and f"{harm}; asked for last: {last}", str(job.log)))


def _trace(rig: Rig, job: jobs.Job, life: float, chance: random.Random) -> str:
    """Trace it for so long; returns when it is idle or dead, with the options of the last trace."""
    sure, last = True, ""

    def told(_: int, outcome: str, recorded: bool) -> None:
        nonlocal sure
        sure = recorded or outcome.startswith(("refused", "busy"))
        with rig.lock:
            rig.tally.count(job.program, outcome, recorded)

    while not job.ready() and not job.over() and not rig.over.is_set():
        time.sleep(0.1)
    end = time.monotonic() + life
    while time.monotonic() < end and not job.over() and not rig.over.is_set():
        with connection(rig.found.socket) as daemon:
            if daemon is not None:
                asked = _options(chance)
                last = " ".join(str(asked).split())
                capture(daemon, [job.pid], asked, told)
        time.sleep(_BUSY_SECONDS)
    if not job.over():
        time.sleep(_QUIET_SECONDS if sure else _UNSURE_SECONDS)
    return last


def _options(chance: random.Random) -> capture_pb2.Options:
    options = capture_pb2.Options(source="kineto", force=True)
    if chance.random() < 0.6:  # two seconds sooner than a window by time
        options.iterations = chance.choice((1, 2, 5))
    else:
        options.duration_ns = int(chance.choice((1e6, 5e6, 2e7, 1e8, 3e8)))
    options.shapes = chance.random() < 0.4
    options.stacks = chance.random() < 0.15
    options.modules = options.stacks and chance.random() < 0.5
    options.flops = chance.random() < 0.1
    return options
