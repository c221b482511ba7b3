"""How far the clocks of ranks are apart, with a bound that is proved.

A collective in which each rank waits for all others (all-reduce, all-gather, all-to-all, a barrier; not broadcast, nor
point to point) ends on no rank before the last one has begun it. With S and E its begin and end on a rank's clock, and
o what that clock is ahead:

    o_s - o_r <= E_s - S_r    for each collective and each two ranks

The least of these over all collectives, closed over third ranks (shortest paths), bounds each difference from both
sides, for clocks that do not drift. The middle is the estimate, half of the width what it may be wrong by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events.table import Array

LINE_POINTS_MAX: Final = 400  # of a drift: pairs of these are looked at
DRIFT_WINDOW_MIN_NS: Final = 5_000_000_000
"""Of shorter windows a slope is good to 16 ppm at best (0.7 s, ends that jitter by 20 us)."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Of each rank, against the first. In ns."""

    ahead: Array  # float64: the estimate
    within: Array  # float64: it is wrong by no more
    most: Array  # float64: what each (row) is ahead of each other (column) at most

    def against(self, reference: int) -> Clocks:
        """The same, against another rank than the first."""
        return _against(self.most, reference)

    @property
    def best_known(self) -> int:
        """The rank against which most others are known, the first of equal ones."""
        known = np.isfinite(self.most) & np.isfinite(self.most.T)
        return int(known.sum(axis=0).argmax())


@dataclass(frozen=True, slots=True)
class ClockLine:
    """How far one clock is ahead of another at a moment of the other."""

    at: int  # ns
    ahead: float  # ns, then
    drift: float  # ns a ns; 0.0: not looked for

    def when(self, moment: Array) -> Array:
        """Ahead at these moments, in ns."""
        found: Array = self.ahead + self.drift * (moment - self.at)
        return found


def most_ahead(start: Array, end: Array) -> Array:
    """Of matched collectives (int64 ns, a row for each rank): what each clock is ahead of each other at most."""
    return np.stack([(each[None, :] - start).min(axis=1) for each in end]).astype(np.float64)


def clocks(start: Array, end: Array) -> Clocks | None:
    """From matched collectives: int64 ns, a row for each rank, a column for each collective.

    None: no clocks fit. Some match is wrong, or a clock was set, or drifts by more than the collectives leave room for.
    """
    return closed(most_ahead(start, end))


def closed(most: Array) -> Clocks | None:
    """From what each clock is ahead of each other at most; inf: not known. Infinite bounds: nothing was found out."""
    most = most.copy()
    np.fill_diagonal(most, 0.0)
    for third in range(len(most)):
        most = np.minimum(most, most[:, third, None] + most[None, third, :])
    if (np.diagonal(most) < 0).any():
        return None
    return _against(most, 0)


def _against(most: Array, reference: int) -> Clocks:
    highest, lowest = most[:, reference], -most[reference, :]
    known = np.isfinite(highest) & np.isfinite(lowest)
    highest, lowest = np.where(known, highest, 0.0), np.where(known, lowest, 0.0)
    return Clocks((highest + lowest) / 2, np.where(known, (highest - lowest) / 2, np.inf), most)


def line(end: Array, other: Array, *, drift: bool | None = None) -> ClockLine:
    """Of collectives that end on both ranks at nearly the same moment (kernels of NCCL): robust, and not proved.

    `end` and `other`: int64 ns, when each ended on either clock. `drift` None: looked for where the window is long
    enough. The slope is the median of those between points, as Theil and Sen have it.
    """
    apart = (end - other).astype(np.float64)
    first, last = int(other[0]), int(other[-1])
    at = (first + last) // 2
    moment = (other - at).astype(np.float64)
    slope = 0.0
    if drift if drift is not None else last - first >= DRIFT_WINDOW_MIN_NS:
        chosen = np.unique(np.linspace(0, len(other) - 1, LINE_POINTS_MAX).astype(np.int64))
        one, two = np.triu_indices(len(chosen), 1)
        between = moment[chosen][two] - moment[chosen][one]
        rise = apart[chosen][two] - apart[chosen][one]
        slope = float(np.median(rise[between > 0] / between[between > 0])) if (between > 0).any() else 0.0
    return ClockLine(at, float(np.median(apart - slope * moment)), slope)
