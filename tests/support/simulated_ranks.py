"""Ranks of a job by seed: what each works, when it comes to a collective, what its clock says. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from profd.answers.ranks.matching import Collectives

Array = npt.NDArray[Any]
STEP_NS = 10_000_000
GLOO = {"transfer_ns": 200_000, "jitter_ns": 100_000}
NCCL = {"transfer_ns": 50_000, "jitter_ns": 20_000}


@dataclass(frozen=True)
class Job:
    """Collectives of all ranks: a row for each rank, a column for each collective."""

    key: Array
    start: Array
    end: Array
    ahead: Array  # of each rank's clock at the begin
    drift: Array  # ns a ns


def job(
    seed: int, *, ranks: int = 2, count: int = 120, transfer_ns: int, jitter_ns: int, drift_ppm: float = 0.0
) -> Job:
    """Buckets of a step, one after the other, each an all-reduce; clocks are up to 50 ms apart."""
    random = np.random.default_rng(seed)
    buckets = int(random.integers(2, 7))
    work = random.lognormal(np.log(STEP_NS / buckets), 0.3, (ranks, count))
    arrival, left = np.zeros((ranks, count)), np.zeros((ranks, count))
    free = np.zeros(ranks)
    for number in range(count):
        arrival[:, number] = free + work[:, number]
        together = arrival[:, number].max() + transfer_ns * random.uniform(0.8, 1.5)
        left[:, number] = free = together + np.abs(random.normal(0, jitter_ns, ranks))
    ahead = random.uniform(-50e6, 50e6, ranks)
    drift = random.uniform(-drift_ppm, drift_ppm, ranks) * 1e-6
    seen = [times + ahead[:, None] + drift[:, None] * times for times in (arrival, left)]
    key = np.arange(count) % buckets
    return Job(key, seen[0].astype(np.int64), seen[1].astype(np.int64), ahead, drift)


def recorded(whole: Job, rank: int, first: int, last: int) -> Collectives:
    """What a window of one rank holds: it begins and ends where it likes."""
    return Collectives(whole.key[first:last], whole.start[rank, first:last], whole.end[rank, first:last])


def work_of(seed: int, *, ranks: int, steps: int = 200, noisy: bool, plant: str = "") -> tuple[Array, Array, int]:
    """(work, of it waiting for a CPU, the rank with the plant), a row for each rank.

    Steps of 10 ms; noisy: they vary by 20 %, and 5 % are preempted for 5 ms or so. Plants: `5 ms in each 10th`,
    `5 % always`.
    """
    random = np.random.default_rng(seed)
    work = STEP_NS * np.clip(random.normal(1, 0.2 if noisy else 0.01, (ranks, steps)), 0.2, None)
    preempted = random.random((ranks, steps)) < (0.05 if noisy else 0)
    queued = np.where(preempted, random.exponential(5e6, (ranks, steps)), 0.0)
    rank = int(random.integers(ranks))
    if plant == "5 ms in each 10th":
        work[rank, int(random.integers(10)) :: 10] += 5e6
    elif plant == "5 % always":
        work[rank] += 0.05 * STEP_NS
    return work + queued, queued, rank
