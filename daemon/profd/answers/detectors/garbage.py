"""Garbage is collected in the steps: by the program, or by Python's own collector.

Rule: `gc.collect` as recorded with `--stacks --c-calls`, and collections of 0.1 ms or more as attached processes tell
of them (`gc: generation 2`), take 1 % or more of the measured steps, outside of Dynamo's compilations (which collect)
and of what device work hides. Bound: that time.
The program asked for them where the trace has its calls of `gc.collect`; and where ASKED_MIN or more full collections
of ASKED_NS or more in the steps have no smaller one between them, on any thread: by itself the interpreter comes to a
full one through smaller ones, over a quarter of all objects, which take too long to have no row. Samples then name the
function.
Wrong where: the collection is what keeps memory in bounds. Shorter collections leave no row.
Source: the interpreter's own name of the call; gc.callbacks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.calls import Call, Calls
from profd.answers.detectors.python_functions import called
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time

ID: Final = "garbage-collection"
SHARE_MIN: Final = 0.01
ASKED_MIN: Final = 3
ASKED_NS: Final = 10_000_000
"""A full collection that takes this long has looked at some 100,000 objects or more."""
_FULL: Final = "gc: generation 2"


def look(facts: Facts) -> Verdict:
    """See the module."""
    collects, measured = facts.on_step_thread(Call.COLLECTS), facts.measured
    spent = facts.exposed(collects.spans).without(facts.calls(Call.COMPILES).spans)
    if not spent.total or spent.total < SHARE_MIN * measured.total:
        return NOTHING
    within = np.flatnonzero(spent.within(measured.start, measured.end) > 0)
    full = _full(facts, collects)
    asked = _calls(facts, collects) or (len(full) if _without_smaller(facts, full) else 0)
    whose = "gc.collect takes" if asked else "Python's garbage collector takes"
    times = asked or len(collects)  # the collector's own row lies in that of the call
    return Finding(
        ID,
        f"{whose} {percent(spent.total, measured.total)} of the time ({times} "
        f"{'calls' if asked else 'collections'} in {len(within)} of {measured.steps} steps, "
        f"{time(spent.total / times)} each){_where(facts, full) if asked else ''}.",
        bound_ns=spent.total,
        numbers={"collections": times, "spent_ns": spent.total, "asked": asked},
        rows=collects.longest(),
        steps=[measured.numbers[at] for at in within.tolist()],
        assumptions=["memory stays in bounds without these collections"],
        confirm="collect every thousandth step, or gc.freeze() after the model is built"
        if asked
        else "gc.freeze() after the model and its data are built, or a higher gc.set_threshold()",
    )


def _calls(facts: Facts, collects: Calls) -> int:
    """How many calls of `gc.collect` were recorded."""
    return sum("collect" in facts.name(code) for code in collects.name.tolist())


def _full(facts: Facts, collects: Calls) -> Calls:
    """The interpreter's own rows of full collections."""
    return collects.take(np.flatnonzero([facts.name(code) == _FULL for code in collects.name.tolist()]))


def _without_smaller(facts: Facts, full: Calls) -> bool:
    """Whether the program asked for them, by the rule of the module."""
    if len(full) < ASKED_MIN or int(np.median(full.end - full.start)) < ASKED_NS:
        return False
    every = facts.calls_anywhere(Call.COLLECTS)
    between = (every.start > full.start[0]) & (every.start < full.start[-1])
    return bool(np.isin(every.row[between], full.row).all())


def _where(facts: Facts, full: Calls) -> str:
    """`, in free_memory (train.py:20)`: where samples saw most of them; empty without samples."""
    name = next((name for name, _, _ in facts.sampled_in(full.spans)), "")
    return f", in {called(name)}" if name else ""
