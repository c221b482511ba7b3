"""How often matching, clocks and stragglers are right on seeded jobs: few for tests, many for `bench answers`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from profd.answers.ranks.clocks import clocks, line
from profd.answers.ranks.matching import Match, match
from profd.answers.ranks.stragglers import TooFew, stragglers

from tests.support.simulated_ranks import GLOO, NCCL, STEP_NS, job, recorded, work_of


@dataclass(frozen=True)
class Matching:
    """Windows of two ranks that begin and end with other collectives."""

    right: int
    wrong: int
    refused: int


def matching(seeds: Sequence[int]) -> Matching:
    """Up to ten collectives are missing at either end of either rank."""
    right = wrong = 0
    for seed in seeds:
        whole = job(seed, **GLOO)
        cut = np.random.default_rng(seed + 300).integers(0, 11, 4)
        first, second = (recorded(whole, rank, cut[rank], 120 - cut[2 + rank]) for rank in (0, 1))
        found = match(first, second)
        if isinstance(found, Match):
            agree = bool((found.first + cut[0] == found.second + cut[1]).all())
            right, wrong = right + agree, wrong + (not agree)
    return Matching(right, wrong, len(seeds) - right - wrong)


@dataclass(frozen=True)
class Errors:
    """How wrong clocks are, in ns."""

    median: float
    worst: float
    within: int  # jobs in which the truth is within the proved bound on all ranks


def gloo_clocks(seeds: Sequence[int]) -> Errors:
    """Of four ranks, by causality."""
    errors: list[float] = []
    within = 0
    for seed in seeds:
        whole = job(seed, ranks=4, **GLOO)
        found = clocks(whole.start, whole.end)
        assert found is not None
        error = np.abs(found.ahead - (whole.ahead - whole.ahead[0]))
        within += bool((error <= found.within + 1).all())  # ns that the simulation cuts off
        errors += error[1:].tolist()
    return Errors(float(np.median(errors)), max(errors), within)


def nccl_clocks(seeds: Sequence[int]) -> Errors:
    """Of two ranks whose clocks drift, by a line through ends; nothing is proved of it."""
    worst = []
    for seed in seeds:
        whole = job(seed, count=300, drift_ppm=50, **NCCL)
        found = line(whole.end[1], whole.end[0], drift=True)
        moment = np.linspace(whole.end[0][0], whole.end[0][-1], 50)
        true = (moment - whole.ahead[0]) / (1 + whole.drift[0])
        ahead = whole.ahead[1] + whole.drift[1] * true - whole.ahead[0] - whole.drift[0] * true
        worst.append(float(np.abs(found.when(moment) - ahead).max()))
    return Errors(float(np.median(worst)), max(worst), 0)


@dataclass(frozen=True)
class Blame:
    """Of jobs with a planted late rank (or none)."""

    found: int  # the planted rank is named
    wrong: int  # some other rank is


def blame(seeds: Sequence[int], ranks: int, *, noisy: bool, plant: str = "", queued: bool = False) -> Blame:
    """200 steps each; `queued`: how long each rank waited for a CPU is known."""
    hit = wrong = 0
    for seed in seeds:
        work, waited, planted = work_of(seed, ranks=ranks, noisy=noisy, plant=plant)
        found = stragglers(work, STEP_NS, waited if queued else None)
        assert not isinstance(found, TooFew)
        named = {one.rank for one in found}
        hit += bool(plant) and planted in named
        wrong += bool(named - ({planted} if plant else set()))
    return Blame(hit, wrong)
