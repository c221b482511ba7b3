"""JAX compiles in the middle of the work.

Rule: in a trace of JAX, `backend_compile_and_load` on the threads that called it, and the passes and code generation of
XLA, take 10 % or more of what was recorded, and are of more than one whole call. Bound: that time, once where threads
compile side by side, as a share of the whole window.
Wrong where: the program warms up in the window, or uses each new shape often.
Source: XLA's own names, read off traces of JAX 0.10 on a CPU; the function is that of `PjitFunction(…)` around the
call, or that of the passes' module, `… (jit_update)`. JAX's profiler records what begins and ends within one of its
windows of half a second: of a compilation that takes longer there are its parts alone.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

import numpy as np

from profd.answers.calls import Call, Calls
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time
from profd.events.table import Array

ID: Final = "jit-compilation"
SHARE_MIN: Final = 0.10
CALLS_MIN: Final = 2
_FUNCTION: Final = re.compile(r"(?=.*\)\Z)(?:PjitFunction\(|.* \(jit_)(.+)\)\Z").match


def look(facts: Facts) -> Verdict:
    """See the module."""
    compiles, parts = facts.calls(Call.COMPILES_JIT), facts.calls(Call.COMPILES_PART)
    recorded = _recorded(facts)
    whole, within = facts.exposed(compiles.spans), facts.exposed(parts.spans)
    cut = within.without(whole).total
    spent = whole.total + cut
    several = len(compiles) >= CALLS_MIN or cut >= SHARE_MIN * recorded
    if not spent or not several or spent < SHARE_MIN * recorded:
        return NOTHING
    # What is cut is told by its passes: they are short, and beside whole calls would say little.
    outside = parts.take(np.flatnonzero(~whole.holds(parts.start)))
    named = _functions(facts, outside, outside.name) if cut > whole.total else []
    named = named or _functions(facts, compiles, compiles.op)
    most = f", most of it for {named[0]}" if named else ""
    share = percent(spent, recorded) + (" of what was recorded" if recorded < facts.measured.total else " of the time")
    often = f" {len(compiles)} times" if len(compiles) >= CALLS_MIN else ""
    each = f", {time(whole.total / len(compiles))} each" if often else ""
    return Finding(
        ID,
        f"JAX compiles{often} in the window: {share}{each}{most}: "
        "shapes, types or static arguments change, or the function is made anew.",
        bound_ns=round(spent * facts.measured.total / recorded),
        numbers={"compilations": len(compiles), "spent_ns": spent},
        rows=(compiles if len(compiles) else parts).longest(),
        assumptions=["the program was warm when the window began"],
        confirm="jax.config.update('jax_explain_cache_misses', True) names what changed; pad to few shapes, jit once",
    )


def _recorded(facts: Facts) -> int:
    """How much of the measured time there is anything of: between windows of JAX's profiler nothing was recorded."""
    phases = {phase.name: phase.duration_ns for phase in facts.reader.meta.waterfall}
    total = facts.measured.total
    if facts.measured.steps or "gaps" not in phases:
        return total
    return max(min(total, phases.get("window", total)), 1)


def _functions(facts: Facts, calls: Calls, codes: Array) -> list[str]:
    """What was compiled, by names that tell it; what took longest first."""
    lasting: Counter[str] = Counter()
    for code, lasted in zip(codes.tolist(), (calls.end - calls.start).tolist(), strict=True):
        if found := _FUNCTION(facts.name(code)):
            lasting[found[1]] += lasted
    return [name for name, _ in lasting.most_common()]
