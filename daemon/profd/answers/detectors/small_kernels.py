"""Kernels are so small that the program cannot launch them as fast as devices finish them.

Rule, in the measured steps: half of the kernels take less than 10 us; a quarter or more of the kernels' time is in
such; no device works for more than 20 % of the time; and 10 % or more is idle before a late launch, outside of data
loading and waits. Bound: that.
Wrong where: the host is slow for a reason of its own. Without the demand for a quarter, 2 of 6 were wrong.
Source: TraceLens warns of a mean below 10 us and of idle time above 15 %; the rule was tried on 15 traces of GPUs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.detectors.host_bound import unexplained
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time
from profd.events import Kind

ID: Final = "small-kernels"
SMALL_NS: Final = 10_000
IN_SMALL_MIN: Final = 0.25  # of the kernels' time
IDLE_MIN: Final = 0.20
LATE_MIN: Final = 0.10


def look(facts: Facts) -> Verdict:
    """See the module."""
    work, measured = facts.work, facts.measured.total
    inside = facts.measured.spans.holds(work.start) & (work.kind == Kind.KERNEL)
    kernels = work.take(np.flatnonzero(inside))
    took = kernels.end - kernels.start
    if not len(kernels) or np.median(took) >= SMALL_NS or facts.idle_ns <= IDLE_MIN * measured:
        return NOTHING
    small, late = took < SMALL_NS, unexplained(facts).total
    if took[small].sum() < IN_SMALL_MIN * took.sum() or late < LATE_MIN * measured:
        return NOTHING
    return Finding(
        ID,
        f"Kernels are too small to keep devices busy: {len(kernels) / facts.measured.steps:,.0f} a step, half of them "
        f"below {time(float(np.median(took)))}; devices stand still {percent(facts.idle_ns, measured)} of the time.",
        bound_ns=late,
        numbers={
            "kernels": len(kernels),
            "median_ns": int(np.median(took)),
            "small": int(small.sum()),
            "idle_ns": facts.idle_ns,
        },
        rows=kernels.row[np.flatnonzero(small)[:5]].tolist(),
        assumptions=["the same work can be done in fewer launches"],
        confirm="try torch.compile, CUDA graphs, or a larger batch",
    )
