"""Ratios of interleaved blocks with confidence intervals: what a claim about overhead rests on."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Ratio:
    """A median of ratios, between two bounds that hold it with a probability of 95 %."""

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Half of what it may be off, as a share of one."""
        return (self.high - self.low) / 2

    def within(self, most: float) -> bool | None:
        """Whether it is at most so much; None where the interval says neither."""
        if self.high <= most:
            return True
        return False if self.low > most else None


def plan(modes: Sequence[str], blocks: int, reference: str = "off") -> list[str]:
    """In which mode each block runs: every other one in `reference`, so that each has it on both sides."""
    others = [mode for mode in modes if mode != reference]
    order = [reference]
    for number in range(blocks):
        turned = others[number % len(others) :] + others[: number % len(others)] if others else []
        for mode in turned:
            order += [mode, reference]
    return order


def ratios(order: Sequence[str], times: Sequence[float], reference: str = "off") -> dict[str, list[float]]:
    """Of each block to the mean of the reference blocks beside it, by mode; those of the reference to its next."""
    if len(order) != len(times):
        raise ValueError("a time for each block is needed")
    found: dict[str, list[float]] = {}
    for at, mode in enumerate(order):
        if mode == reference:
            following = next((i for i in range(at + 1, len(order)) if order[i] == reference), None)
            if following is not None:
                found.setdefault(reference, []).append(times[following] / times[at])
            continue
        beside = [times[i] for i in (at - 1, at + 1) if 0 <= i < len(order) and order[i] == reference]
        if beside:
            found.setdefault(mode, []).append(times[at] / statistics.fmean(beside))
    return found


def interval(values: Sequence[float], seed: int = 1) -> Ratio:
    """The median and its bootstrap interval; the same for the same values. ValueError for none."""
    if not values:
        raise ValueError("no values")
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]
    return Ratio(statistics.median(values), low, high)


def noise_floor(reference: Ratio) -> float:
    """What no claim may be below: how far off may be from off."""
    return max(abs(reference.high - 1), abs(1 - reference.low))
