"""What `critical` says of steps with a late rank's plant, beside steps of the same window that have none.

`python -m bench.ours.without_plant FILE SEED …` runs a job of each kind and seed, and keeps them for `kept`. With
`prompt` before the seeds it runs the programs of `gloo_jobs.PROGRAMS`, whose woken threads get a core at once.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from profd.answers.ranks.job import job_of
from profd.answers.ranks.matched import Group
from profd.answers.ranks.meetings import Meetings, Met, meetings
from profd.answers.ranks.ranks import judge
from profd.answers.ranks.without import Without, without_rank
from profd.events.table import Array
from profd.query.captured import Captured

from tests.corpus.answers import gloo_jobs
from tests.support.importing import import_trace


@dataclass(frozen=True)
class Pair:
    """The mean step of one job, in ms."""

    planted: float
    said: Without  # by `critical`, of the steps with the plant
    without: float  # of the steps that have none

    @property
    def close(self) -> bool:
        """Within 10 %."""
        return abs(self.said.middle - self.without) <= 0.1 * self.without

    @property
    def within(self) -> bool:
        """The steps without the plant last what the range has."""
        return self.said.least <= self.without <= self.said.most

    def __str__(self) -> str:
        said = self.said
        told = f"{said.middle:.1f}" if said.told else "not told"
        most = f"{said.most:.1f}" if said.ends else "not known"
        return f"{self.planted:.1f}: said {told} ({said.least:.1f} to {most}), without {self.without:.1f}"


@dataclass(frozen=True)
class Steps:
    """Whole steps of one group of ranks, with the plant and without it. Times in ns."""

    work: Array  # of each rank before it came to each meeting
    shared: Array  # of each meeting, from the last arrival
    planted: Array  # bool: of each meeting, whether its step has the plant
    step: int  # meetings in one
    late: int  # the rank with the plant

    def compared(self) -> Pair:
        """What is said of the steps with the plant, and what the others last."""
        of = {which: self._job(self.planted == which) for which in (True, False)}
        lasts = {which: float(one.play()[0, -1]) for which, one in of.items()}
        count = {which: one.count // self.step * 1e6 for which, one in of.items()}
        said = without_rank(of[True], self.late, lasts[True])
        ms = {name: getattr(said, name) / count[True] for name in ("least", "middle", "most", "delays")}
        return Pair(lasts[True] / count[True], Without(**ms, doubt=said.doubt), lasts[False] / count[False])

    def _job(self, chosen: Array) -> Meetings:
        """A job of some of the steps, one behind the other: each meeting with the work before it."""
        work, shared = (each[..., chosen].astype(np.float64) for each in (self.work, self.shared))
        ranks, at = np.arange(len(work)), np.arange(len(shared))
        never = np.zeros(work.shape, dtype=np.int64)
        group = Group("", ranks, never, never, never, ["all_reduce"] * len(at))
        met = Met(group, ranks, at, at, work, np.broadcast_to(at - 1, work.shape), shared, self.step)
        return Meetings([met], len(at), np.zeros(len(at), dtype=np.int64), 0)


def pair(kind: str, ranks: int, seed: int, *, prompt: bool = False) -> Pair:
    """Run a job in which steps with the plant and without it take turns. `prompt`: see `gloo_jobs`."""
    return run(kind, ranks, seed, prompt=prompt).compared()


def run(kind: str, ranks: int, seed: int, *, prompt: bool = False) -> Steps:
    """The steps of such a job."""
    with tempfile.TemporaryDirectory() as folder:
        stored = []
        for file in gloo_jobs.run_in_turns(Path(folder), kind, ranks, seed, prompt=prompt):
            stored.append(Path(folder) / file.stem)
            import_trace(file, stored[-1], trace=file.stem, capture="c0123456789ab")
        return steps_of(Captured(stored), np.array(gloo_jobs.planted(kind, seed)))


def steps_of(capture: Captured, planted: Array) -> Steps:
    """Of a recorded job; `planted`: whether each step that it made has the plant."""
    job = job_of(capture)
    found = meetings(job.ranks, job.matched, judge(job).aligned)
    (one,) = found.met
    late = next(at for at, rank in enumerate(job.ranks) if rank.member.rank == gloo_jobs.LATE)
    # The recorder has all collectives of the window: which step one is of, its number says.
    step = one.group.place[0, one.column] * len(planted) // len(job.ranks[int(one.ranks[0])].recorded)
    _, which, count = np.unique(step, return_inverse=True, return_counts=True)
    whole = count[which] == one.step
    return Steps(one.work[:, whole], one.shared[whole], planted[step[whole]], one.step, late)


def keep(file: Path, jobs: dict[str, Steps]) -> None:
    """In us: the work of each rank and what they share, a row each; whether each step has the plant."""
    kept: dict[str, Any] = {}
    for name, one in jobs.items():
        kept[name] = np.rint(np.vstack([one.work, one.shared]) / 1e3).astype(np.int32)
        kept[f"{name}.planted"] = one.planted[:: one.step]
    np.savez_compressed(file, **kept)


def kept(file: Path) -> dict[str, Steps]:
    """The jobs of a file, of two ranks each."""
    with np.load(file) as found:
        return {name: _kept(found[name], found[f"{name}.planted"]) for name in found if "." not in name}


def _kept(us: Array, planted: Array) -> Steps:
    step = us.shape[1] // len(planted)
    times = us.astype(np.float64) * 1e3
    return Steps(times[:-1], times[-1], np.repeat(planted, step), step, gloo_jobs.LATE)


def main() -> None:
    """See above."""
    file, *seeds = sys.argv[1:]
    prompt = seeds[:1] == ["prompt"]
    kinds = tuple(gloo_jobs.PROGRAMS) if prompt else gloo_jobs.LATER
    jobs = {f"{kind}-{seed}": run(kind, 2, int(seed), prompt=prompt) for seed in seeds[int(prompt) :] for kind in kinds}
    keep(Path(file), jobs)


if __name__ == "__main__":
    main()
