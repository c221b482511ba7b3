"""JAX compiles in the middle of the work.

Rule: in a trace of JAX, `backend_compile_and_load` takes 10 % or more of the window on the threads that called it, in
two calls or more. Bound: that time, once where threads compile side by side.
Wrong where: the program warms up in the window, or uses each new shape often.
Source: XLA's own name of the call, read off traces of JAX 0.10; the function is that of `PjitFunction(…)` around it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time

ID: Final = "jit-compilation"
SHARE_MIN: Final = 0.10
CALLS_MIN: Final = 2


def look(facts: Facts) -> Verdict:
    """See the module."""
    compiles, measured = facts.calls(Call.COMPILES_JIT), facts.measured.total
    spent = facts.exposed(compiles.spans).total
    if len(compiles) < CALLS_MIN or spent < SHARE_MIN * measured:
        return NOTHING
    lasting: Counter[str] = Counter()
    for code, lasted in zip(compiles.op.tolist(), (compiles.end - compiles.start).tolist(), strict=True):
        lasting[facts.name(code)] += lasted
    named = [name.removeprefix("PjitFunction(").removesuffix(")") for name, _ in lasting.most_common() if name]
    most = f", most of it for {named[0]}" if named else ""
    return Finding(
        ID,
        f"JAX compiles {len(compiles)} times in the window: {percent(spent, measured)} of the time, "
        f"{time(spent / len(compiles))} each{most}: "
        "shapes, types or static arguments change, or the function is made anew.",
        bound_ns=spent,
        numbers={"compilations": len(compiles), "spent_ns": spent},
        rows=compiles.longest(),
        assumptions=["the program was warm when the window began"],
        confirm="jax.config.update('jax_explain_cache_misses', True) names what changed; pad to few shapes, jit once",
    )
