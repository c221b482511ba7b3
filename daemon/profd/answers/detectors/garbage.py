"""The program collects garbage by hand in its steps.

Rule: `gc.collect` as recorded with `--stacks --c-calls` takes 1 % or more of the measured steps, outside of Dynamo's
compilations (which collect) and of what device work hides. Bound: that time.
Wrong where: the collection is what keeps memory in bounds. Automatic collections leave no row and are not looked for.
Source: the interpreter's own name of the call.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.calls import Call
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
    return Finding(
        ID,
        f"gc.collect takes {percent(spent.total, measured.total)} of the time ({len(collects)} calls in {len(within)} "
        f"of {measured.steps} steps, {time(spent.total / len(collects))} each).",
        bound_ns=spent.total,
        numbers={"collections": len(collects), "spent_ns": spent.total},
        rows=collects.longest(),
        steps=[measured.numbers[at] for at in within.tolist()],
        assumptions=["memory stays in bounds without these collections"],
        confirm="collect every thousandth step, or gc.freeze() after the model is built",
    )
