"""How long the steps had lasted, had a rank worked as the others do: a range, and one number where that can be told.

A replay changes only the work of that rank. What else changes was seen on real jobs over gloo, on two cores that other
programs kept busy, beside steps of the same window that had no plant (docs/ranks.md):

- **Work that waits** (the processes hardly run): ranks that come together have more threads to wake at a time than one
  late rank has. A third of the meetings' delays comes on top.
- **Work that needs a core**: other programs take the core and the caches of a rank that waits, so that delays shrink
  with the lateness. By how much differs with the host: the steps gain 1.5 times what the replay does at load 5 to 20,
  and twice at 30. The estimate is the middle of the range, and is told where that is narrow.
- **Devices** were not compared, and of files from elsewhere nobody knows what ran: the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from profd.answers.ranks.meetings import Meetings, as_others

DONORS: Final = 4
TOLD_WITHIN: Final = 0.1  # of what the steps last, in 8 of 10: an estimate that may be further off is not told
RUNS_MOST: Final = 0.3  # of steps without delays, that a process runs whose work waits: 0.15 and 1.1 or more were seen
# So much more a meeting is delayed to which ranks come together than one in which they wait for a late rank: usually,
# by how much that may be wrong, and at most.
TOGETHER, TOGETHER_WITHIN, TOGETHER_MOST = 0.35, 0.35, 0.8


@dataclass(frozen=True, slots=True)
class Without:
    """How long the steps last where a rank is as the others are. The ends have the chance of other steps in them."""

    least: float  # delays shrink as the steps do
    middle: float
    most: float  # delays stay, and meetings have more of them (TOGETHER_MOST), but where work is known to need a core
    delays: float
    doubt: float  # a share of the middle: so much further off are other steps on a host as busy, in 8 of 10

    @property
    def told(self) -> bool:
        """Whether one number says it."""
        return self.doubt <= TOLD_WITHIN

    def as_json(self) -> dict[str, int | None]:
        """The keys of docs/json.md."""
        middle = round(self.middle) if self.told else None
        return {
            "without_ns": middle,
            "without_least_ns": round(self.least),
            "without_most_ns": round(self.most),
        }


NOT_PLAYED: Final = {"without_ns": None, "without_least_ns": None, "without_most_ns": None}


def without_rank(found: Meetings, rank: int, whole: float) -> Without:
    """Of the rank in this place; `whole`: how long the steps last. The mean of some draws."""
    lasts = found.lasts(as_others(found, rank, DONORS), DONORS)
    delays = lasts.measured - lasts.undelayed
    less, stays = sorted((lasts.undelayed * whole / max(whole - delays, 1.0), lasts.measured))
    runs = None if found.running is None else float(found.running.max()) * whole / max(lasts.undelayed, 1.0)
    needs_a_core = runs is not None and runs > RUNS_MOST
    more = 0.0 if needs_a_core else min(TOGETHER_MOST * lasts.delayed, max(whole - stays, 0.0))
    least, most = less * max(1 - lasts.error, 0.0), (stays + more) * (1 + lasts.error)
    if runs is None or needs_a_core:
        middle = (less + stays) / 2
        return Without(least, middle, most, delays, max(middle - least, most - middle) / max(middle, 1.0))
    middle = stays + min(TOGETHER * lasts.delayed, more)
    within = min(TOGETHER_WITHIN * lasts.delayed, more)
    return Without(least, middle, most, delays, math.hypot(within / max(middle, 1.0), lasts.error))
