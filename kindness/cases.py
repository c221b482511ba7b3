"""Programs that check themselves and always print the same: run plain, then under captures, and compared."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kindness import cgroup, jobs, place
from kindness.daemons import Daemons, killing
from kindness.ledger import Job, Kills, Ledger, Skipped, Tally
from kindness.trial import alone, under_captures

_SECONDS: Final = 600.0
_KILLS: Final = (15, 40)  # captures that recorded between two daemons that are killed
_MARK: Final = "KINDNESS_CASE"


@dataclass(frozen=True, slots=True)
class Case:
    """One file below `kindness/programs`. Ended with `skip: …`, it cannot run here.

    `quiet`: a pattern of lines that it may write to stderr without us, too. `memory_bytes`: of a cgroup of its own.
    `same`: whether it always prints the same.
    """

    name: str
    file: str
    arguments: tuple[str, ...] = ()
    quiet: str = r"(?!)"
    memory_bytes: int = 0
    same: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of one run: `harm` as in `jobs.Job.harm`, and all that it printed."""

    harm: str
    printed: str
    log: Path


class Trials:
    """Cases of one shard, with one Python and one daemon."""

    def __init__(self, ledger: Ledger, shard: str, python: Path, found: Daemons, chance: random.Random) -> None:
        self._ledger, self._shard, self._python = ledger, shard, python
        self._found, self._chance = found, chance
        self.tally = Tally(ledger, shard)
        self.skipped = ""  # why the last case could not run here, if so

    def judge(self, case: Case) -> str:
        """Run it both ways and write down what came of it; the harm, empty if none or if it does not run plain."""
        plain = self._run(case, captured=False)
        if plain.harm:
            self.skipped = plain.harm.partition("skip: ")[2] or f"it does not run plain: {plain.harm}"
            self._ledger.add(Skipped(self._shard, case.name, self.skipped))
            return ""
        self.skipped = ""
        captured = self._run(case, captured=True)
        harm = captured.harm
        if not harm and case.same and captured.printed != plain.printed:
            harm = f"it printed {captured.printed[-150:]!r}, and plain {plain.printed[-150:]!r}"
        self._ledger.add(Job(self._shard, case.name, harm, str(captured.log)))
        return harm

    def _run(self, case: Case, *, captured: bool) -> Ended:
        mark = f"{self._shard}-{os.getpid()}-{self._chance.randrange(1 << 32)}"
        with ExitStack() as stack:
            command: list[str | Path] = [self._python, place.PROGRAMS / case.file, *case.arguments]
            if case.memory_bytes:
                command = cgroup.joined(stack.enter_context(cgroup.limited(case.memory_bytes)), command)
            environment = self._found.environment(**{_MARK: mark})
            folder = self._ledger.logs(self._shard)
            wrapped = jobs.attached(command) if captured else command
            job = jobs.start(case.name, wrapped, folder, environment, seconds=_SECONDS, quiet=case.quiet)
            try:
                if captured:
                    under_captures(self._found, job, self.tally, self._chance, lambda: marked(mark))
                else:
                    alone(job)
            finally:
                job.end()
            printed = job.log.with_suffix(".out").read_text(errors="replace")
            return Ended(job.harm(), printed, job.log)


def marked(mark: str) -> list[int]:
    """Pids of all processes with this mark in their environment: also those that are nobody's children any more."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if wanted in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
                found.append(int(pid))
        except OSError:
            continue
    return found


def judge_all(
    ledger: Ledger, shard: str, python: Path, found: Daemons, chance: random.Random, cases: Sequence[Case]
) -> None:
    """Those first that ran least often on these sources; each once. Meanwhile daemons are killed.

    Whoever looks for the next daemon does so in its surroundings, too.
    """
    done = Counter(row.get("program") for row in ledger.rows(place.digest()) if row["shard"] == shard)
    trials, over = Trials(ledger, shard, python, found, chance), threading.Event()
    killer = killing(
        found,
        random.Random(chance.random()),
        _KILLS,
        lambda: trials.tally.recorded,
        over,
        lambda: ledger.add(Kills(shard, 1)),
    )
    try:
        for case in sorted(cases, key=lambda case: done[case.name]):
            before = trials.tally.recorded
            harm = trials.judge(case)
            recorded = trials.tally.recorded - before
            print(f"  {case.name}: {harm or 'unharmed'}, {recorded} captures recorded", flush=True)
    finally:
        over.set()
        killer.join()
