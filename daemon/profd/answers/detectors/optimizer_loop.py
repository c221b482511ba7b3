"""The optimizer updates one parameter after the other.

Rule: below `Optimizer.step`, 50 or more of `aten::add_`, `mul_`, `addcmul_`, `addcdiv_`, `lerp_`, `sub_`, `div_` a
step that no `aten::_foreach_` op calls; and the optimizer takes 5 % or more of the measured steps, not counting what
device work hides. Bound: all of the optimizer's time, which a fused one needs a part of.
Wrong where: parameters are few and large. By time alone, 3 were wrong.
Source: `foreach` and `fused` of torch.optim; with these the calls are `aten::_foreach_*` and `aten::_fused_*`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent

ID: Final = "optimizer-loop"
SHARE_MIN: Final = 0.05
A_STEP_MIN: Final = 50


def look(facts: Facts) -> Verdict:
    """See the module."""
    updates, measured = facts.on_step_thread(Call.UPDATES), facts.measured
    parts, spans = facts.on_step_thread(Call.UPDATES_ONE), updates.spans
    # On a CPU `_foreach_` calls them, too: that is no loop of the optimizer's.
    calling = np.unique(parts.op)
    lists = [code for code in calling.tolist() if facts.name(code).startswith("aten::_")]
    inside = int((spans.holds(parts.start) & ~np.isin(parts.op, lists)).sum())
    spent = facts.exposed(spans).total
    if inside < A_STEP_MIN * max(measured.steps, 1) or spent < SHARE_MIN * measured.total:
        return NOTHING
    name = facts.name(int(updates.name[np.argmax(updates.end - updates.start)])).removeprefix("Optimizer.step#")
    return Finding(
        ID,
        f"{name} updates parameters one by one: {inside / measured.steps:,.0f} calls a step, "
        f"{percent(spent, measured.total)} of the time.",
        bound_ns=spent,
        numbers={"calls": inside, "steps": measured.steps, "spent_ns": spent},
        rows=updates.longest(),
        assumptions=["an optimizer that is fused takes little of this time"],
        confirm="build it with fused=True (or foreach=True) where torch offers it for these parameters",
    )
