"""How long the steps had lasted, had a rank worked as the others do: a range, and one number where that can be told.

A replay changes only the work of that rank. What else changes was seen on real jobs over gloo, on two cores that were
idle or kept busy by other programs, beside steps of the same window that had no plant (docs/ranks.md):

- **Work that is delayed** is so by other programs: its delays may go with the lateness. The estimate keeps half of
  them, and is told where that half is little.
- **Collectives** stay as long as they were on an idle host (8 % less at most). On a busy one they shrink, but there
  work is delayed, too, and nothing is told.
- **What other ranks work** changes with the late one: caches are cold where they wait. Beside a rank that was 140 ms
  late in steps of 4.5 ms the other one took a sixth longer. What is not won may differ by a share of what is.
- **Ranks that come together** where one was late: such a collective lasts up to 2.6 times as long on an idle host, less
  on a busy one (`together`). Where the window has few of them, and collectives in it wait for a core, nobody knows, and
  the range has no end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from profd.answers.ranks.meetings import Meetings, as_others
from profd.answers.ranks.together import together

DONORS: Final = 4
TOLD_WITHIN: Final = 0.1  # of what the steps last, in 8 of 10: an estimate that may be further off is not told
OTHERS_WITHIN: Final = 0.15  # by such a share of what is won the rest may last shorter, or longer
STAY_WITHIN: Final = 0.1  # of delays of collectives: by so much they may shrink where work is not delayed


@dataclass(frozen=True, slots=True)
class Without:
    """How long the steps last where a rank is as the others are. The ends have the chance of other steps in them."""

    least: float  # delays shrink as the steps do
    middle: float
    most: float  # delays stay; infinite: not known, since ranks hardly came together
    delays: float
    doubt: float  # a share of the middle: so much further off are other steps on a host as busy, in 8 of 10

    @property
    def told(self) -> bool:
        """Whether one number says it."""
        return self.ends and self.doubt <= TOLD_WITHIN

    @property
    def ends(self) -> bool:
        """Whether the range does."""
        return math.isfinite(self.most)

    def as_json(self) -> dict[str, int | None]:
        """The keys of docs/json.md."""
        return {
            "without_ns": round(self.middle) if self.told else None,
            "without_least_ns": round(self.least),
            "without_most_ns": round(self.most) if self.ends else None,
        }


NOT_PLAYED: Final = {"without_ns": None, "without_least_ns": None, "without_most_ns": None}


def without_rank(found: Meetings, rank: int, whole: float) -> Without:
    """Of the rank in this place; `whole`: how long the steps last. The mean of some draws."""
    changed = as_others(found, rank, DONORS)
    lasts, met = found.lasts(changed, DONORS), together(found, changed, DONORS)
    delays = lasts.measured - lasts.undelayed
    less, stays = sorted((lasts.undelayed * whole / max(whole - delays, 1.0), lasts.measured))
    middle = (lasts.measured + lasts.unhindered) / 2
    others = OTHERS_WITHIN * max(whole - middle, 0.0) / max(whole, 1.0)
    chance = math.hypot(lasts.error, others)
    least = max(less - met.within, 0.0) * max(1 - chance, 0.0)
    most = (stays + met.longer) * (1 + chance)
    middle = max(middle, least)
    apart = (lasts.measured - lasts.unhindered) / 2
    within = math.hypot(apart, STAY_WITHIN * lasts.delayed, met.within) / max(middle, 1.0)
    return Without(least, middle, most if met.known else math.inf, delays, math.hypot(within, chance))
