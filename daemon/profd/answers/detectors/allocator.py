"""Memory of devices is asked of the driver in the middle of training.

Rule: after the second step `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and their kin are called three times or more and
take 1 % or more of the measured steps, not counting what device work hides. Bound: that time.
Wrong where: shapes still grow (a warm-up of several steps).
Source: PyTorch's notes on the caching allocator: a warm program asks the driver for nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent

ID: Final = "allocator"
SHARE_MIN: Final = 0.01
CALLS_MIN: Final = 3


def look(facts: Facts) -> Verdict:
    """See the module."""
    measured = facts.measured
    found = facts.calls(Call.ALLOCATES)
    found = (
        found.take(np.flatnonzero(found.start >= measured.start[1]))
        if measured.steps > 1
        else found.take(np.zeros(0, np.int64))
    )
    spent = facts.exposed(found.spans).total
    if len(found) < CALLS_MIN or spent < SHARE_MIN * measured.total:
        return NOTHING
    names = ", ".join(sorted({facts.name(code) for code in found.name.tolist()})[:3])
    return Finding(
        ID,
        f"The program asks the driver for memory {len(found) / (measured.steps - 1):.3g} times a step "
        f"({names}), {percent(spent, measured.total)} of the time: its cache does not hold what steps need.",
        bound_ns=spent,
        numbers={"calls": len(found), "spent_ns": spent},
        rows=found.longest(),
        assumptions=["the program was warm when the window began"],
        confirm="take out empty_cache(), free memory, or try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )
