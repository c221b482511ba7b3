"""Tensors are converted again and again.

Rule: `aten::_to_copy` ten times a step or more, and for 20 % or more of the measured steps, not counting what device
work hides.
Bound: that time.
Wrong where: tensors are moved on purpose (parameters kept on the host), or by autocast on a model with little work:
that took 12 to 16 % of three small programs on a CPU, which the rule refuses.
Source: tried on 15 traces of GPUs; `_to_copy` is what every `.to()` that does something calls.
"""

from __future__ import annotations

from typing import Final

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent

ID: Final = "casts"
SHARE_MIN: Final = 0.20
A_STEP_MIN: Final = 10


def look(facts: Facts) -> Verdict:
    """See the module."""
    casts, measured = facts.calls(Call.CASTS), facts.measured
    spent = facts.exposed(casts.spans).total
    if len(casts) < A_STEP_MIN * max(measured.steps, 1) or spent < SHARE_MIN * measured.total:
        return NOTHING
    return Finding(
        ID,
        f"Tensors are converted {len(casts) / measured.steps:.3g} times a step (aten::_to_copy), "
        f"{percent(spent, measured.total)} of the time.",
        bound_ns=spent,
        numbers={"conversions": len(casts), "steps": measured.steps, "spent_ns": spent},
        rows=casts.longest(),
        assumptions=["the type or place of these tensors can be chosen once"],
        confirm="capture with --shapes: top --group-by-input-shape names the tensors; keep them in one type",
    )
