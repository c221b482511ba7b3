"""Garbage is collected in the steps: by the program, or by Python's own collector.

Rule: `gc.collect` as recorded with `--stacks --c-calls`, and collections of 0.1 ms or more as attached processes tell
of them (`gc: generation 2`), take 1 % or more of the measured steps, outside of Dynamo's compilations (which collect)
and of what device work hides. Bound: that time.
Wrong where: the collection is what keeps memory in bounds. Shorter collections leave no row.
Source: the interpreter's own name of the call; gc.callbacks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.calls import Call, Calls
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time

ID: Final = "garbage-collection"
SHARE_MIN: Final = 0.01


def look(facts: Facts) -> Verdict:
    """See the module."""
    collects, measured = facts.on_step_thread(Call.COLLECTS), facts.measured
    spent = facts.exposed(collects.spans).without(facts.calls(Call.COMPILES).spans)
    if not spent.total or spent.total < SHARE_MIN * measured.total:
        return NOTHING
    within = np.flatnonzero(spent.within(measured.start, measured.end) > 0)
    asked = _asked(facts, collects)
    whose = "gc.collect takes" if asked else "Python's garbage collector takes"
    times = asked or len(collects)  # the collector's own row lies in that of the call
    return Finding(
        ID,
        f"{whose} {percent(spent.total, measured.total)} of the time ({times} "
        f"{'calls' if asked else 'collections'} in {len(within)} of {measured.steps} steps, "
        f"{time(spent.total / times)} each).",
        bound_ns=spent.total,
        numbers={"collections": times, "spent_ns": spent.total},
        rows=collects.longest(),
        steps=[measured.numbers[at] for at in within.tolist()],
        assumptions=["memory stays in bounds without these collections"],
        confirm="collect every thousandth step, or gc.freeze() after the model is built"
        if asked
        else "gc.freeze() after the model and its data are built, or a higher gc.set_threshold()",
    )


def _asked(facts: Facts, collects: Calls) -> int:
    """How many of them the program asked for."""
    return sum("collect" in facts.name(code) for code in collects.name.tolist())
