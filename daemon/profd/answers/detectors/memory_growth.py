"""Memory grows from step to step.

Rule: what is allocated and not freed is looked at after each measured step, eight of them at least. In each quarter
of them the least is more than the most of the quarter before, and in all it grows by 1 MiB or more. Bound: none,
it costs no time.
Wrong where: a cache still fills (a data set kept in memory, batches that become longer).
Source: a level, not a slope: what allocators, warm-up and pairs of steps do goes up and down.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from profd.answers.facts import Allocations, Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict
from profd.events import DeviceType
from profd.events.table import Array

ID: Final = "memory-growth"
STEPS_MIN: Final = 8
GROWTH_MIN: Final = 1 << 20
PARTS: Final = 4


def look(facts: Facts) -> Verdict:
    """See the module."""
    if not facts.memory:
        return Silence("allocations were not recorded: capture with --memory")
    if facts.measured.steps < STEPS_MIN:
        return Silence(f"{STEPS_MIN + 1} steps or more")
    levels = [(_levels(one, facts.measured.end), one) for one in facts.memory]
    growing = [(level, one) for level, one in levels if _grows(level)]
    if not growing:
        return NOTHING
    level, one = max(growing, key=lambda found: int(found[0][-1] - found[0][0]))
    grown, steps = int(level[-1] - level[0]), len(level) - 1
    place = DeviceType(one.device_type).label if one.device_type in set(DeviceType) else "a device"
    return Finding(
        ID,
        f"Memory of {place} grows by {grown / steps / 1e6:.3g} MB a step, {grown / 1e6:.3g} MB in {steps} steps, "
        "and is not freed.",
        bound_ns=None,
        numbers={"grown_bytes": grown, "steps": steps},
        steps=[facts.measured.numbers[0], facts.measured.numbers[-1]],
        assumptions=["no cache of the program is still filling"],
        confirm="profctl memory TRACE names the stacks whose blocks stay (GROWS)",
    )


def _levels(one: Allocations, moments: Array) -> Array:
    """Bytes allocated and not freed at each moment, counted from the begin of the trace."""
    running = np.concatenate([[0], np.cumsum(one.bytes)])
    found: Array = running[np.searchsorted(one.time, moments, side="right")]
    return found


def _grows(level: Array) -> bool:
    parts = np.array_split(level, PARTS)
    rises = all(int(later.min()) > int(before.max()) for before, later in pairwise(parts))
    return rises and int(level[-1] - level[0]) >= GROWTH_MIN
