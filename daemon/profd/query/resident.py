"""What looks at the memory of a process say of its window: how much it grew, and whether it grows steadily."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from profd.derive.steps import Steps
from profd.model.resident import Resident

LOOKS_MIN: Final = 20
LASTED_MIN_NS: Final = 1_500_000_000
GROWN_MIN: Final = 1 << 20
GROWN_SHARE_MIN: Final = 0.001  # of what there was
PARTS: Final = 4
# Importing torch takes 1.3 to 1.5 s of CPU and took 2.5 to 3.3 s at load 5 on two cores; ten times that is a guess at
# hosts with more load.
YOUNG_NS: Final = 30_000_000_000
STEP_SHARE_MIN: Final = 0.1
STEP_SHARE_MAX: Final = 0.7
"""Of the growth, from one part to the next. Of a steady one each is a third, where the program runs evenly (at load 9
on two cores 0.1 to 0.69); a jump has more."""
FIRST_SHARE_MAX: Final = 0.5  # a warm-up grows most at its begin
SPREAD_SHARE_MIN: Final = 0.6  # of what comes and goes within a part: less growth may be chance


def too_few(resident: Resident) -> bool:
    """The looks are too few, or too close together, to tell growth from chance."""
    return len(resident.looks) < LOOKS_MIN or resident.lasted_ns < LASTED_MIN_NS


def may_still_start(resident: Resident, stepped_ns: int) -> bool:
    """The process is young, and was not in its steps for half of the looks: it may import, and grow by that.

    An optimizer's first step imports, too. Growth in each quarter is growth in steps where these are half of the looks.
    """
    young = resident.age_ns is not None and resident.age_ns < YOUNG_NS
    return young and 2 * stepped_ns < resident.lasted_ns


def steady(resident: Resident) -> int | None:
    """Bytes by which the process's own part grows over the looks; None: it does not, or not steadily.

    By the least of each quarter of the looks, since buffers come and go.
    """
    if too_few(resident):
        return None
    own = [look.own_bytes for look in resident.looks]
    edges = [len(own) * part // PARTS for part in range(PARTS + 1)]
    parts = [own[first:last] for first, last in pairwise(edges)]
    levels = [min(part) for part in parts]
    grown = levels[-1] - levels[0]
    spread = max(max(part) - min(part) for part in parts)
    if grown < max(GROWN_MIN, GROWN_SHARE_MIN * own[0], SPREAD_SHARE_MIN * spread):
        return None
    shares = [(later - before) / grown for before, later in pairwise(levels)]
    if min(shares) < STEP_SHARE_MIN or max(shares) > STEP_SHARE_MAX or shares[0] > FIRST_SHARE_MAX:
        return None
    return grown * PARTS // (PARTS - 1)


def as_json(resident: Resident, steps: Steps) -> dict[str, Any] | None:
    """`resident` of the summary (docs/json.md). None: not known."""
    if not resident.looks:
        return None
    first, last = resident.looks[0], resident.looks[-1]
    return {
        "looks": len(resident.looks),
        "lasted_ns": resident.lasted_ns,
        "begin_bytes": first.total_bytes,
        "end_bytes": last.total_bytes,
        "most_bytes": max(look.total_bytes for look in resident.looks),
        "own_begin_bytes": first.own_bytes,
        "own_end_bytes": last.own_bytes,
        "grown_bytes": resident.grown_bytes if len(resident.looks) > 1 else None,
        "grown_per_step_bytes": _per_step(resident, steps),
        "steady": None if too_few(resident) else steady(resident) is not None,
    }


def _per_step(resident: Resident, steps: Steps) -> int | None:
    if not len(steps) or not resident.lasted_ns:
        return None
    return round(resident.grown_bytes * float(steps.durations.mean()) / resident.lasted_ns)
