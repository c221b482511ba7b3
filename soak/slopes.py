"""Whether something grows: a line through what was measured, and the interval that its slope lies in. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_NORMAL: Final = 1.959964  # 97.5 % of the normal distribution
_BATCHES: Final = 30  # neighbours are alike: their means are what the line is drawn through


@dataclass(frozen=True, slots=True)
class Slope:
    """Units of y for one of x, and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def grows(self) -> bool:
        """Whether zero, and all that falls, lies outside of the interval."""
        return self.low > 0


def slope(xs: Sequence[float], ys: Sequence[float]) -> Slope:
    """By least squares through the means of batches. Raises ValueError with fewer than three points."""
    points = _means(xs, ys)
    if len(points) < 3:
        raise ValueError(f"{len(points)} points make no line")
    middle_x, middle_y = _mean([x for x, _ in points]), _mean([y for _, y in points])
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    value = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
    left = sum((y - middle_y - value * (x - middle_x)) ** 2 for x, y in points)
    freedom = len(points) - 2
    half = _student(freedom) * math.sqrt(left / freedom / spread)
    return Slope(value, value - half, value + half)


def _means(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    each = max(1, math.ceil(len(xs) / _BATCHES))
    return [(_mean(xs[at : at + each]), _mean(ys[at : at + each])) for at in range(0, len(xs), each)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _student(freedom: int) -> float:
    """97.5 % of Student's t, by its expansion around the normal distribution: close from three on."""
    z, n = _NORMAL, freedom
    first = (z**3 + z) / (4 * n)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return z + first + second + third
