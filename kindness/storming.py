"""The two sides of a storm: slots, in which one program follows the other, and askers, who capture whichever runs."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
from profclient.connection import Daemon
from profclient.errors import ClientError

from kindness import cgroup, jobs, place, pythons, wishes
from kindness.asking import capture
from kindness.catalog import Program
from kindness.daemons import Daemons
from kindness.ledger import Job, Ledger, Skipped, Tally

NAME = "storm"
_LATER_SECONDS: Final = 0.5
_ORDINARY: Final = ("nice", "-n", "10")  # jobs: what we and our daemons are is inherited


def hurry() -> None:
    """On a machine that is full of jobs, daemons are back soon after each kill. Before anything is started."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)


@dataclass
class Storm:
    """What the threads of a storm share. `observer`: the directory of its build, None where it cannot be built."""

    found: Daemons
    ledger: Ledger
    observer: Path | None
    shard: str = NAME
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    running: dict[int, tuple[jobs.Job, Program]] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)  # pids that a capture is being asked of
    later: dict[int, float] = field(default_factory=dict)  # when a process that was refused is asked again
    cpu_seconds: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.tally = Tally(self.ledger, self.shard)

    def told(self, pid: int, outcome: str, recorded: bool) -> None:
        """What became of one process of a capture."""
        with self.lock:
            job = self.running.get(pid)
            self.tally.count(job[0].program if job else "(children)", outcome, recorded)

    def skip(self, program: str, why: str) -> None:
        """Once of each."""
        with self.lock:
            self.seen[f"skipped {program}"] += 1
            if self.seen[f"skipped {program}"] > 1:
                return
        self.ledger.add(Skipped(self.shard, program, why))


def slot(storm: Storm, programs: Sequence[Program], chance: random.Random, seconds: tuple[float, float]) -> None:
    """One job after the other until the storm is over; jobs that run then are waited for."""
    while not storm.over.is_set():
        (program,) = chance.choices(programs, [each.share for each in programs])
        try:
            one_job(storm, program, chance, chance.uniform(*seconds))
        except (cgroup.NoCgroups, LookupError) as error:
            storm.skip(program.name, str(error))
            storm.over.wait(0.2)


def one_job(storm: Storm, program: Program, chance: random.Random, seconds: float) -> str:
    """Run it to its end, for askers to capture: its harm and its log, empty if there was none.

    Raises NoCgroups or LookupError where it cannot run here.
    """
    with ExitStack() as stack:
        job = _start(storm, program, chance, seconds, stack)
        _until_over(storm, job, program)
        harm = job.harm()
    storm.ledger.add(Job(storm.shard, job.program, harm, str(job.log)))
    return harm and f"{job.program}: {harm}\n{job.log}"


def _until_over(storm: Storm, job: jobs.Job, program: Program) -> None:
    with storm.lock:
        storm.running[job.pid] = (job, program)
    while not job.over():
        time.sleep(0.05)
    with storm.lock:
        del storm.running[job.pid]
        storm.later.pop(job.pid, None)
        storm.cpu_seconds += job.cpu_seconds


def _start(storm: Storm, program: Program, chance: random.Random, seconds: float, stack: ExitStack) -> jobs.Job:
    """Raises NoCgroups or LookupError where it cannot run here."""
    python, name = _python(program, chance)
    environment = dict(program.environment)
    if program.torch:
        observed = storm.observer is not None and chance.random() < 0.5
        name += ", observer" if observed else ", no observer"
        if observed:
            environment["PROFD_TORCH_DIR"] = str(storm.observer)
    command: list[str | Path] = [python, place.PROGRAMS / f"{program.name}.py", f"{seconds:.1f}", str(program.rest)]
    if program.memory_bytes:
        command = cgroup.joined(stack.enter_context(cgroup.limited(program.memory_bytes)), command)
    if program.attached:
        command = jobs.attached(command)
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        command = [*_ORDINARY, *command]
    return jobs.start(
        name, command, storm.ledger.logs(storm.shard), storm.found.environment(**environment), seconds=seconds
    )


def _python(program: Program, chance: random.Random) -> tuple[Path, str]:
    """The interpreter that runs it, and what the row is called. Raises LookupError where there is none."""
    if program.torch:
        python = pythons.with_profd(pythons.OWN)
        return python or Path(), program.name
    there = [version for version in program.versions if pythons.ready(version)]
    if not there:
        raise LookupError(f"none of CPython {', '.join(program.versions)} is here")
    version = chance.choice(there)
    return pythons.with_profd(version) or Path(), f"{program.name}, {version}"


def asker(storm: Storm, chance: random.Random) -> None:
    """One client after the other, each good for some captures."""
    while not storm.over.is_set():
        try:
            with Daemon(storm.found.socket) as daemon:
                for _ in range(chance.randrange(1, 200)):
                    if storm.over.is_set() or not _ask(storm, daemon, chance):
                        break
        except (ClientError, grpc.RpcError, OSError):
            storm.over.wait(0.1)


def _ask(storm: Storm, daemon: Daemon, chance: random.Random) -> bool:
    """One capture; whether its daemon was there."""
    chosen = _choose(storm, chance)
    if chosen is None:
        storm.over.wait(0.05)
        return True
    pid, program, pids = chosen
    asked = wishes.options(program, chance)
    stop = None
    if not asked.duration_ns and not asked.iterations:
        stop = chance.choice((0.0, 0.01, 0.05, 0.2))
    elif asked.iterations or chance.random() < 0.1:
        stop = chance.choice((0.0, 0.02, 0.3))
    outcomes: list[str] = []

    def told(of: int, outcome: str, recorded: bool) -> None:
        storm.told(of, outcome, recorded)
        outcomes.append(outcome)

    children = program.name == "forks" and chance.random() < 0.5
    try:
        capture(daemon, pids, asked, told, stop_after=stop, children=children)
    finally:
        with storm.lock:
            storm.asked.discard(pid)
            if any(outcome.startswith(("refused no_source", "busy")) for outcome in outcomes):
                # It has not attached yet, or it is held by what comes after a recording.
                storm.later[pid] = time.monotonic() + _LATER_SECONDS
    return "UnreachableError" not in outcomes


def _choose(storm: Storm, chance: random.Random) -> tuple[int, Program, list[int]] | None:
    """A job that nobody asks for now, mostly: its pid and program, and all pids of the capture."""
    with storm.lock:
        now = time.monotonic()
        there = [each for each in storm.running.items() if storm.later.get(each[0], 0.0) <= now]
        beside = chance.random() < 0.005  # another capture of the same job
        free = [each for each in there if beside or each[0] not in storm.asked]
        if not free:
            return None
        pid, (_, program) = chance.choice(free)
        storm.asked.add(pid)
    others = [chance.choice(there)[0] for _ in range(2)] if chance.random() < 0.05 else []
    return pid, program, sorted({pid, *others})


def killed_clients(storm: Storm, chance: random.Random) -> None:
    """`profctl start`, killed at a random moment: its daemon notices that it lost its client."""
    while not storm.over.wait(chance.uniform(10, 30)):  # each holds its job for 15 s more
        with storm.lock:
            there = list(storm.running)
        if not there:
            continue
        command = [
            str(jobs.BIN / "profctl"),
            "start",
            "--pid",
            str(chance.choice(there)),
            *chance.choice(([], ["--stacks"])),
        ]
        said = subprocess.DEVNULL
        client = subprocess.Popen(command, env=storm.found.environment(), stdout=said, stderr=said)
        storm.over.wait(chance.uniform(0.3, 2))
        client.kill()
        client.wait()
        storm.told(0, "client killed", False)
