"""Which collective of one rank is which of another, though windows do not begin with the same one.

With sequence numbers these say it. Without, the calls of one group come in the same order on all its ranks: a shift is
searched for at which what is called agrees, causality leaves room for a clock, and ends are as far apart as they can be
alike. Several shifts that do as well as one another are no answer: a refusal is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from profd.events.table import Array

SHIFT_MAX: Final = 64  # collectives by which windows may be apart
PAIRS_MIN: Final = 8  # of fewer nobody can say that they belong together
AGREES_MIN: Final = 0.98  # of what is called, at the shift
TIMES_BETTER: Final = 1.5  # than at any other shift must ends agree
_NO_KEY: Final = np.iinfo(np.int64).min
CLOCK_STEP_NS: Final = 5_000  # ends that differ by less are as good as equal


@dataclass(frozen=True, slots=True)
class Collectives:
    """Of one group on one rank, in order of start. Times in ns of the rank's clock."""

    key: Array  # int64: what was called with which size, by numbers that all ranks share
    start: Array
    end: Array
    sequence: Array | None = None  # of the group; None: not recorded

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class Match:
    """Places of the same collectives on two ranks."""

    first: Array
    second: Array


@dataclass(frozen=True, slots=True)
class NoMatch:
    """Why there is none, as a sentence."""

    why: str


def match(first: Collectives, second: Collectives, clock: tuple[int, int] | None = None) -> Match | NoMatch:
    """`clock`: between what the first rank's clock is ahead of the second's, in ns, where that is known."""
    if first.sequence is not None and second.sequence is not None:
        return _by_sequence(first, second, first.sequence, second.sequence)
    if min(len(first), len(second)) < PAIRS_MIN:
        return NoMatch(f"there are fewer than {PAIRS_MIN} collectives to compare")
    shifts = _agreeing(first, second)
    if not shifts:
        return NoMatch("what the ranks call does not agree at any shift")
    spread = {shift: deviation for shift in shifts if (deviation := _spread(first, second, shift, clock)) is not None}
    if not spread:
        return NoMatch("no clock fits: some collective would have ended before all ranks had come to it")
    best, *others = sorted(spread, key=lambda shift: (spread[shift], abs(shift)))
    if others and spread[others[0]] <= TIMES_BETTER * spread[best] + CLOCK_STEP_NS:
        return NoMatch("two shifts fit as well as one another: steps are too regular, or too few")
    return Match(*_overlap(first, second, best))


def _by_sequence(first: Collectives, second: Collectives, mine: Array, theirs: Array) -> Match | NoMatch:
    if len(np.unique(mine)) < len(mine) or len(np.unique(theirs)) < len(theirs):
        return NoMatch("a sequence number stands for two collectives of one rank")
    _, here, there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    if not len(here):
        return NoMatch("the ranks have no sequence number in common")
    if (first.key[here] != second.key[there]).any():
        return NoMatch("ranks called different collectives by the same sequence number")
    return Match(here, there)


def _overlap(first: Collectives, second: Collectives, shift: int) -> tuple[Array, Array]:
    """The places that meet where the second rank's collective `n + shift` is the first one's `n`."""
    begin = max(0, -shift)
    here = np.arange(begin, max(begin, min(len(first), len(second) - shift)))
    return here, here + shift


def _agreeing(first: Collectives, second: Collectives) -> list[int]:
    """Shifts at which what is called agrees, over half of the shorter window at least.

    All are looked at together: a capture may have 100,000 pairs of groups and ranks, of some collectives each.
    """
    count, other = len(first), len(second)
    least = max(PAIRS_MIN, -(-min(count, other) // 2))
    lowest, highest = max(least - count, -SHIFT_MAX), min(other - least, SHIFT_MAX)
    shifts = np.arange(lowest, highest + 1)
    # Of the second rank what the first one's collectives may meet; no collective has the key around it.
    met = np.full(count + len(shifts) - 1, _NO_KEY)
    begin, end = max(lowest, 0), min(other, count + highest)
    met[begin - lowest : end - lowest] = second.key[begin:end]
    same = (sliding_window_view(met, count) == first.key).sum(axis=1)
    pairs = np.minimum(count, other - shifts) - np.maximum(-shifts, 0)
    found: list[int] = shifts[same / pairs >= AGREES_MIN].tolist()
    return found


def _spread(first: Collectives, second: Collectives, shift: int, clock: tuple[int, int] | None) -> float | None:
    """Median deviation of how far ends are apart; None: no clock fits."""
    here, there = _overlap(first, second, shift)
    least = int((first.start[here] - second.end[there]).max())
    most = int((first.end[here] - second.start[there]).min())
    if clock is not None:
        least, most = max(least, clock[0]), min(most, clock[1])
    if least > most:
        return None
    apart = first.end[here] - second.end[there]
    return float(np.median(np.abs(apart - np.median(apart))))
