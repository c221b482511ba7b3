"""What lanes, killer and checks of one run share: a daemon for all users, its watcher, and what has become of it."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kindness import jobs, place
from kindness.daemons import Daemons
from kindness.ledger import Ledger
from soak.client import Client
from soak.counts import CAPTURES, FAULTS, KILLS, Counts
from soak.truth import Promise, Verdict, acknowledged
from soak.watcher import Watcher
from tests.support import readable

PROGRAMS: Final = place.ROOT / "soak" / "programs"
_FLAGS: Final = ("--store-bytes", "2GiB", "--log-level", "warning")
_ENVIRON: Final = {"PROFD_TORCH_BUILD": "off", "PROFD_SDK_ARENA_BYTES": "24MiB"}
_JOB_SECONDS: Final = 7200.0


@dataclass(eq=False)
class Follow:
    """One capture on its way. `counted`: how far its program is, for the moment before a kill."""

    promise: Promise
    counted: Callable[[], int]
    capture: str = ""
    daemons: int = 0  # that were killed since it was asked for
    hits: set[str] = field(default_factory=set)  # what else was killed since then
    since: float = 0.0  # when the first of the daemons was
    away_seconds: float = 0.0  # from then until the last of their successors was ready


class Rig:
    """`quota`: kills that this round still owes; the lanes go on until there are none."""

    def __init__(self, found: Daemons, ledger: Ledger, chance: random.Random) -> None:
        self.found, self.ledger, self.chance = found, ledger, chance
        self.lock = threading.Lock()
        self.quota = 0
        self.faults: list[str] = []
        self.broken_off = False  # we end what runs: nothing that is seen from now on says anything
        self.jobs: dict[int, jobs.Job] = {}
        self.deaths: list[str] = []  # all victims, in their order
        self.killed: set[int] = set()  # jobs that were killed: they end as they end
        self.following: set[Follow] = set()
        self.asked: set[str] = set()  # ids of captures that were answered for, of this round
        self.traces: dict[str, int] = {}  # that were told to be stored, and their events, of this round
        self.outcomes: Counter[str] = Counter()
        self.watcher = Watcher(found.socket, self.fault)

    @property
    def going_on(self) -> bool:
        """Whether lanes begin another capture."""
        return self.quota > 0 and not self.faults

    def client(self) -> Client:
        """Of a thread of its own."""
        return Client(self.found.socket)

    def keep_on(self, step: Callable[[Client], None]) -> None:
        """What a lane does until the round is over, with a client of its thread."""
        client = self.client()
        try:
            while self.going_on:
                step(client)
        finally:
            client.close()

    def chance_of(self, name: str) -> random.Random:
        """For a thread: its choices do not depend on what others do."""
        with self.lock:
            return random.Random(f"{self.chance.random()}-{name}")

    def fault(self, what: str) -> None:
        """Something is not as it must be: the round ends, and everything is kept."""
        if self.broken_off:
            return
        with self.lock:
            self.faults.append(what)
        self.ledger.add(Counts(FAULTS, "", harm=what, log=str(self.found.directory)))
        print(f"  FAULT: {what}", flush=True)

    def kill_counted(self, victim: str) -> None:
        """One was killed."""
        self.quota -= 1
        self.deaths.append(victim)
        self.ledger.add(Counts(KILLS, victim, kills=1))
        with self.lock:
            for follow in self.following:
                follow.hits.add(victim)

    def judge(self, source: str, outcome: str, events: int, verdict: Verdict, said: str) -> None:
        """A capture has been looked at. `said`: what it was, for whoever looks into a fault."""
        if self.broken_off:
            return
        lost, doubled = verdict.lost, verdict.doubled
        with self.lock:
            self.outcomes[f"{source} {outcome}"] += 1
        self.ledger.add(Counts(CAPTURES, source, captures=1, events=events, lost=lost, doubled=doubled))
        if lost or doubled:
            self.fault(f"{lost} events lost, {doubled} doubled: {said}")

    @contextmanager
    def follow(self, promise: Promise, counted: Callable[[], int]) -> Iterator[Follow]:
        """A capture, from before it is asked for until it is judged."""
        follow = Follow(promise, counted)
        with self.lock:
            self.following.add(follow)
        try:
            yield follow
        finally:
            with self.lock:
                self.following.discard(follow)

    def kill_daemon(self, away_seconds: float) -> None:
        """SIGKILL. What programs have recorded until then is promised; what has been acknowledged even without them."""
        with self.lock:
            for follow in self.following:
                follow.daemons += 1
                follow.since = follow.since or time.monotonic()
                follow.promise.ends(follow.counted())
        self.found.kill(away_seconds, self._read_journals)
        with self.lock:
            for follow in self.following:
                if follow.since:
                    follow.away_seconds = time.monotonic() - follow.since

    def _read_journals(self) -> None:
        with self.lock:
            for follow in self.following:
                folder = self.found.running.state_dir / "journal" / follow.capture
                if follow.capture and folder.exists():
                    acked = sum(acknowledged(file.read_bytes()) for file in folder.glob("*/chunks.pfc"))
                    follow.promise.acked = max(follow.promise.acked, acked)

    def start(self, program: str, *arguments: object, uid: int = 0) -> jobs.Job:
        """A program of ours, as that user, once it is ready. Raises AssertionError where it does not get there."""
        command: list[str | Path] = [place_python(), "-c", (PROGRAMS / f"{program}.py").read_text()]
        command += [str(argument) for argument in arguments]
        if uid:
            identity = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
            command = [*readable.command(*identity, *map(str, command))]
        folder = self.ledger.logs(program)
        job = jobs.start(program, command, folder, self.found.environment(), seconds=_JOB_SECONDS, told=True)
        with self.lock:
            self.jobs[job.pid] = job
        self.wait(job, lambda: job.ready() or job.over(), f"{program} is ready")
        return job

    def wait(self, job: jobs.Job, condition: Callable[[], object], what: str) -> None:
        """Until it holds. Else the job's log says who holds which socket, and where job and daemon stand."""
        try:
            until(condition, f"{what}, see {job.log}")
        except AssertionError:
            with job.log.open("ab") as log, contextlib.suppress(OSError):  # ss: while all of it still stands
                subprocess.run(["ss", "-xapn"], stdout=log, stderr=log, check=False)
            job.look_into(self.found.running.process.pid)
            raise

    def endless(self, source: str, what: str) -> None:
        """A capture that comes to no end."""
        if self.broken_off:
            return
        self.ledger.add(Counts(CAPTURES, source, captures=1, endless=1))
        self.fault(what)

    def forget(self, job: jobs.Job) -> None:
        """A program has ended: well, unless it was killed."""
        job.tell()  # nobody reads that any more
        with self.lock:
            self.jobs.pop(job.pid, None)
            killed = job.pid in self.killed
            self.killed.discard(job.pid)
        if killed:
            job.forget()
        elif harm := job.harm():
            self.fault(f"{job.program}, pid {job.pid}, was harmed: {harm}; {job.log}")

    def end_jobs(self) -> None:
        """Have all programs end, and look how."""
        for job in list(self.jobs.values()):
            job.tell()
        for job in list(self.jobs.values()):
            until(job.over, f"{job.program}, pid {job.pid}, ends")
            self.forget(job)


def place_python() -> Path:
    """The interpreter that has profd."""
    return jobs.BIN / "python"


def until(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    """Until it holds. Raises AssertionError that says what did not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


@contextmanager
def rig(directory: Path, ledger: Ledger, chance: random.Random, flags: Sequence[str] = ()) -> Iterator[Rig]:
    """A rig in this directory, which stays; what runs in it ends.

    Lanes of a run that is broken off (by SIGTERM) still wait for their programs when these are ended here.
    """
    found = Daemons(directory, user=os.geteuid() != 0, flags=(*_FLAGS, *flags), environ=_ENVIRON)
    one = Rig(found, ledger, chance)
    one.watcher.open()
    try:
        yield one
    except BaseException:
        one.broken_off = True
        raise
    finally:
        one.watcher.close()
        for job in list(one.jobs.values()):
            job.end()
        found.running.stop()
