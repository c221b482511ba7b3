"""Dynamo compiles in the middle of training.

Rule: `_compile.compile_inner (dynamo_timed)` on the thread of the steps takes 1 % or more of the measured steps, not
counting what device work hides. Bound: that time.
Wrong where: compiling had not ended when the window began (a warm-up of several steps), or each new shape is planned.
Source: the ranges that PyTorch 2.6 and later put around the compilation of a frame, read off traces of 2.13.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time

ID: Final = "recompilation"
SHARE_MIN: Final = 0.01


def look(facts: Facts) -> Verdict:
    """See the module."""
    compiles, measured = facts.on_step_thread(Call.COMPILES), facts.measured
    spent = facts.exposed(compiles.spans)
    if not spent.total or spent.total < SHARE_MIN * measured.total:
        return NOTHING
    within = np.flatnonzero(spent.within(measured.start, measured.end) > 0)
    return Finding(
        ID,
        f"Dynamo compiles {len(compiles)} times in {len(within)} of {measured.steps} steps after the first: "
        f"{percent(spent.total, measured.total)} of the time, {time(spent.total / len(compiles))} each.",
        bound_ns=spent.total,
        numbers={"compilations": len(compiles), "spent_ns": spent.total},
        rows=compiles.longest(),
        steps=[measured.numbers[at] for at in within.tolist()],
        assumptions=["the program was warm when the window began"],
        confirm="run with TORCH_LOGS=recompiles, which names the guard that failed; mark_dynamic, or pad to few shapes",
    )
