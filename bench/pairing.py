"""What something adds to a loop, from short blocks with and without it, turn about; with confidence intervals.

Other programs on the machine only ever add to a block, and seldom to all: so a block's cost is the mean of the better
half of many, less the best tenth. Intervals are of 95 %, by drawing whole rounds again and again (bootstrap).
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.measure import Row

WITHOUT = "off"
_DRAWS = 400
Round = dict[str, float]
"""ns of one block of each way, `off` among them."""


@dataclass(frozen=True)
class Estimate:
    """A value and where it lies in 95 of 100 repetitions."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def cost(rounds: Sequence[Round], way: str) -> float:
    """Ns of a block."""
    found = sorted(taken[way] for taken in rounds)
    return statistics.fmean(found[len(found) // 10 : max(len(found) // 2, 1)])


def added(rounds: Sequence[Round], way: str) -> float:
    """Ns that a way adds to a block."""
    return cost(rounds, way) - cost(rounds, WITHOUT)


def ratio(rounds: Sequence[Round], way: str, peer: str) -> Estimate:
    """What a way adds, over what a peer adds."""
    return estimate(rounds, lambda drawn: added(drawn, way) / added(drawn, peer))


def steps_row(case: str, what: str, taken: Sequence[Round], way: str, bar: float) -> Row:
    """How much longer a block takes that way, held against a bar. A block: one step."""
    found = estimate(taken, lambda drawn: cost(drawn, way) / cost(drawn, WITHOUT))
    return Row(
        case,
        what,
        f"{found.value:.4f}x ({found.low:.4f} to {found.high:.4f})",
        ratio=found.value,
        bar=f"<= {bar}",
        met=found.value <= bar,
        note=f"a step takes {cost(taken, WITHOUT) / 1e6:.2f} ms",
    )


def estimate(rounds: Sequence[Round], of: Callable[[Sequence[Round]], float]) -> Estimate:
    """Of all rounds, with its interval."""
    chance = random.Random(0)
    drawn = sorted(of(chance.choices(rounds, k=len(rounds))) for _ in range(_DRAWS))
    return Estimate(of(rounds), drawn[_DRAWS // 40], drawn[-1 - _DRAWS // 40])
