"""Which ranks are slower than the others, and whether that is more than chance.

What a rank works in a step is the time from the end of the last collective to its arrival at the next: one clock
suffices. A rank is blamed

- always: its work stands above the others' as chance has not (aligned ranks), and by 2 % of a step or more in the
  middle;
- in a rhythm: in each so many'th step its differences from the others' median rank above its own in other steps as
  chance has not, whichever rhythm that is, and these cost 1 % of the time;
- sometimes: it has more of the largest differences from the others' median than its share, and these cost 1 % of the
  time.

Chance is 1 % for all ranks and the rules together. Time that a rank waited for a CPU is no work: where it is known, it
is taken off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events.table import Array

CHANCE: Final = 0.01
# Of the chance that is allowed, the share of each rule. What is always there is the hardest to see.
ALWAYS, RHYTHM, SOMETIMES = 0.6, 0.2, 0.2
EVERY_MAX: Final = 20  # of a rhythm
TIMES_MIN: Final = 5  # that it comes in the window
STEPS_MIN: Final = 20
ALWAYS_MIN: Final = 0.02  # of a step
SOMETIMES_MIN: Final = 0.01  # of the time
LARGE: Final = 0.98  # quantile of the other ranks' differences beyond which one is large
LARGE_MIN: Final = 3  # on the rank
EXCESS_MIN: Final = 0.05  # of a step: less is not large


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that is slower. Times in ns."""

    rank: int
    always: bool  # in all steps; otherwise in `steps`
    steps: list[int]  # places of those with the largest differences
    excess_ns: float  # a step in the middle (always), or all of them together
    chance: float  # of as much without a cause, for all ranks and rules together
    every: int = 0  # of so many steps one; 0: no rhythm is known


@dataclass(frozen=True, slots=True)
class TooFew:
    """Steps, or ranks, to say anything."""

    why: str


def stragglers(work: Array, step_ns: float, queued: Array | None = None) -> list[Straggler] | TooFew:
    """The most costly rank first. `work`: ns, a row for each rank, a column for each step; `queued`: of it, ready and
    waiting for a CPU.
    """
    ranks, steps = work.shape
    if ranks < 2:
        return TooFew("one rank has no others to be compared with")
    if steps < STEPS_MIN:
        return TooFew(f"{steps} steps are too few to tell a slow rank from chance: {STEPS_MIN} or more")
    own = (work if queued is None else work - queued).astype(np.float64)
    excess = np.stack([own[rank] - np.median(np.delete(own, rank, axis=0), axis=0) for rank in range(ranks)])
    above = _above_others(own)
    found = [_of_rank(above[rank], excess, rank, step_ns) for rank in range(ranks)]
    return sorted((one for one in found if one is not None), key=lambda one: -_cost(one, steps))


def _cost(one: Straggler, steps: int) -> float:
    return one.excess_ns * steps if one.always else one.excess_ns


def _of_rank(chance: float, excess: Array, rank: int, step_ns: float) -> Straggler | None:
    among = len(excess)
    middle = float(np.median(excess[rank]))
    if among * chance / ALWAYS < CHANCE and middle >= ALWAYS_MIN * step_ns:
        return Straggler(rank, True, [], middle, among * chance / ALWAYS)
    found = [_in_a_rhythm(excess[rank], among), _sometimes(excess, rank, step_ns)]
    likely = [(at, chance, every) for at, chance, every in found if chance < CHANCE and len(at) >= LARGE_MIN]
    for at, chance, every in likely:
        cost = float(excess[rank][at].sum())
        if cost >= SOMETIMES_MIN * step_ns * excess.shape[1]:
            return Straggler(rank, False, at.tolist(), cost, chance, every)
    return None


def _sometimes(excess: Array, rank: int, step_ns: float) -> tuple[Array, float, int]:
    """(places of its large differences, the probability of so many, no rhythm)."""
    others = np.delete(excess, rank, axis=0)
    large = max(float(np.quantile(others, LARGE)), EXCESS_MIN * step_ns)
    at, beside = np.flatnonzero(excess[rank] > large), int((others > large).sum())
    # As many or more: of that many and the others' that are large, so many are this rank's.
    chance = _drawn_at_least(len(at), excess.shape[1], len(at) + beside, excess.size)
    return at, len(excess) * chance / SOMETIMES, 0


def _in_a_rhythm(mine: Array, among: int) -> tuple[Array, float, int]:
    """(places, probability, every) of the rhythm whose steps rank highest: Wilcoxon's sum, for each that there may be.

    Nothing is assumed of how differences vary but that their order is chance.
    """
    steps = len(mine)
    place = np.empty(steps)
    place[np.argsort(mine, kind="stable")] = np.arange(1, steps + 1)
    every = range(2, min(EVERY_MAX, steps // TIMES_MIN) + 1)
    best = (-math.inf, 0, 1)  # deviations, phase, every
    for step in every:
        phase = np.arange(steps) % step
        count, ranked = np.bincount(phase), np.bincount(phase, weights=place)
        above = (ranked - count * (steps + 1) / 2) / np.sqrt(count * (steps - count) * (steps + 1) / 12)
        best = max(best, (float(above.max()), int(above.argmax()), step))
    deviations, first, step = best
    chance = 0.5 * math.erfc(deviations / math.sqrt(2))
    return np.arange(first, steps, step), among * sum(every) * chance / RHYTHM, step


def _above_others(own: Array) -> list[float]:
    """Of each rank, the probability of work as much above the others' by chance: Hodges' and Lehmann's aligned ranks.

    Nothing is assumed of how work varies, but that it does so on all ranks alike: within a step any order is as likely.
    """
    place = np.empty(own.size)
    place[np.argsort(own - own.mean(axis=0), axis=None, kind="stable")] = np.arange(own.size)
    above = place.reshape(own.shape)
    above = above - above.mean(axis=0)
    deviation = math.sqrt(float((above**2).mean(axis=0).sum()))
    if not deviation:
        return [1.0] * len(own)
    return [0.5 * math.erfc(sum_ / deviation / math.sqrt(2)) for sum_ in above.sum(axis=1).tolist()]


def _drawn_at_least(times: int, draws: int, marked: int, of: int) -> float:
    """The probability that so many of `draws` from `of`, of which some are marked, are (hypergeometric)."""
    more = range(times, min(draws, marked) + 1)
    whole = _ln_ways(of, draws)
    return sum(math.exp(_ln_ways(marked, k) + _ln_ways(of - marked, draws - k) - whole) for k in more)


def _ln_ways(of: int, draws: int) -> float:
    """The logarithm of how many sets of so many there are."""
    if not 0 <= draws <= of:
        return -math.inf
    return math.lgamma(of + 1) - math.lgamma(draws + 1) - math.lgamma(of - draws + 1)
