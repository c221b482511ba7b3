"""The program waits for a device in the middle of its work, and the device then waits for the program.

Rule: `cuda*Synchronize` (`hip*`, `cu*`) once a step or more, and stretches in which devices ran dry during such a
call and had no work until a later launch take 2 % or more of the measured steps. Bound: these stretches.
Wrong where: the program means to wait (to time itself, at the end of a step): it costs as much, and is no mistake.
Source: PyTorch's performance tuning guide, "Avoid unnecessary CPU-GPU synchronization"; the shares on 15 traces of
GPUs.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from profd.answers.calls import Call, Calls
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent
from profd.answers.spans import Spans

ID: Final = "synchronisation"
SHARE_MIN: Final = 0.02


def look(facts: Facts) -> Verdict:
    """See the module."""
    waits, measured = facts.calls(Call.WAITS), facts.measured
    dry = after_waits(facts)
    lost = dry.total
    if len(waits) < max(measured.steps, 1) or lost < SHARE_MIN * measured.total:
        return NOTHING
    return Finding(
        ID,
        f"Devices stand still {percent(lost, measured.total)} of the time because the program waited for them and had "
        f"launched nothing further ({len(waits) / measured.steps:.3g} waits a step, {_callers(facts, waits)}).",
        bound_ns=lost,
        numbers={"waits": len(waits), "steps": measured.steps, "idle_after_waits_ns": lost},
        rows=waits.longest(dry.within(waits.start, waits.end)),
        assumptions=["what follows a wait does not need its result at once"],
        confirm="take the waits out (.item(), .cpu(), nonzero, prints of tensors), or do them every hundredth step",
    )


def after_waits(facts: Facts) -> Spans:
    """The stretches in the measured part in which devices had run dry while the host waited for them."""
    late, waits = facts.late, facts.calls(Call.WAITS).spans
    at = np.flatnonzero(waits.holds(late.start))
    return facts.measured_part(Spans.union(late.start[at], late.until[at]))


def _callers(facts: Facts, waits: Calls) -> str:
    """`most in aten::item of train.py(12): loop`."""
    (op, function), count = Counter(zip(waits.op.tolist(), waits.function.tolist(), strict=True)).most_common(1)[0]
    inside = f"in {facts.name(op)}" if op >= 0 else "called directly"
    where = f" of {facts.name(function)}" if function >= 0 else ""
    return f"{percent(count, len(waits))} {inside}{where}"
