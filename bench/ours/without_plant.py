"""What `critical` says of steps with a late rank's plant, beside steps of the same window that have none."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from profd.answers.ranks.critical import Without, without_rank
from profd.answers.ranks.job import job_of
from profd.answers.ranks.meetings import Meetings, meetings
from profd.answers.ranks.ranks import judge
from profd.events.table import Array
from profd.query.captured import Captured

from tests.support import gloo_jobs
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
        return f"{self.planted:.1f}: said {told} ({said.least:.1f} to {said.most:.1f}), without {self.without:.1f}"


def pair(kind: str, ranks: int, seed: int) -> Pair:
    """Run a job in which steps with the plant and without it take turns."""
    with tempfile.TemporaryDirectory() as folder:
        stored = []
        for file in gloo_jobs.run_in_turns(Path(folder), kind, ranks, seed):
            stored.append(Path(folder) / file.stem)
            import_trace(file, stored[-1], trace=file.stem, capture="c0123456789ab")
        return compared(Captured(stored), np.array(gloo_jobs.planted(seed)))


def compared(capture: Captured, planted: Array) -> Pair:
    """Of a recorded job; `planted`: whether each step that it made has the plant."""
    job = job_of(capture)
    found = meetings(job.ranks, job.matched, judge(job).aligned)
    (one,) = found.met
    late = next(at for at, rank in enumerate(job.ranks) if rank.member.rank == gloo_jobs.LATE)
    # The recorder has all collectives of the window: which step one is of, its number says.
    step = one.group.place[0, one.column] * len(planted) // len(job.ranks[int(one.ranks[0])].recorded)
    of = {which: _steps(found, (planted[step] == which) & _whole(step, one.step)) for which in (True, False)}
    lasts = {which: float(one.play()[0, -1]) for which, one in of.items()}
    count = {which: one.count // found.met[0].step * 1e6 for which, one in of.items()}
    said = without_rank(of[True], late, lasts[True])
    by_step = {field.name: getattr(said, field.name) / count[True] for field in dataclasses.fields(said)}
    return Pair(lasts[True] / count[True], Without(**by_step), lasts[False] / count[False])


def _whole(step: Array, meetings_of_one: int) -> Array:
    """Whether all meetings of the step of each are there."""
    _, place, count = np.unique(step, return_inverse=True, return_counts=True)
    whole: Array = count[place] == meetings_of_one
    return whole


def _steps(found: Meetings, chosen: Array) -> Meetings:
    """A job of some of the steps, one behind the other: each meeting with the work before it."""
    (one,) = found.met
    column = np.flatnonzero(chosen)
    at = np.arange(len(column))
    met = dataclasses.replace(
        one,
        at=at,
        column=one.column[column],
        work=one.work[:, column],
        before=np.broadcast_to(at - 1, (len(one.ranks), len(column))),
        shared=one.shared[column],
    )
    return Meetings([met], len(column), np.zeros(len(column), dtype=np.int64), 0)
