"""A function of the program loops over elements, and calls operators on little tensors.

Rule: on the thread of the steps one function, which is not torch's, is the innermost one that samples see for 20 % or
more of the measured time, operators included; 500 or more operators a step begin in it (not those within operators),
half of which last less than 20 us. Not in traces with device work: `small-kernels` is about these.
Bound: that time, and the backward pass, since each of these operators has its own there.
Wrong where: each step of the loop needs the one before, as in a recurrent network.
Source: what torch and Python do around an operator takes microseconds, whatever it computes.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profd.answers.detectors.python_functions import called, is_torchs
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent, time
from profd.events.table import Array
from profd.query import rules
from profd.query.view import durations

ID: Final = "operator-loop"
SHARE_MIN: Final = 0.20
A_STEP_MIN: Final = 500
SHORT_NS: Final = 20_000
_ABOUT_ONE_OPERATOR: Final = re.compile(r"(.*/)?torch/(_tensor|functional|nn/functional)\.py\(").match
_BACKWARD: Final = re.compile(r"(.*/)?torch/autograd/").match


def look(facts: Facts) -> Verdict:
    """See the module."""
    if not facts.has_samples:
        return Silence("samples beside the recording: a longer window, or --samples 100hz")
    measured = facts.measured
    least = A_STEP_MIN * max(measured.steps, 1)
    if len(facts.work) or len(facts.reader) < least:
        return NOTHING
    innermost = facts.sampled_innermost(lambda name: _ABOUT_ONE_OPERATOR(name) is not None)
    loops = [one for one in innermost if not is_torchs(one[0]) and one[1].total >= SHARE_MIN * measured.total]
    if not loops:
        return NOTHING
    start, lasts = _operators(facts)
    name, spans, rows = max(loops, key=lambda one: int(one[1].holds(start).sum()))
    inside = lasts[spans.holds(start)]
    if len(inside) < least or np.median(inside) >= SHORT_NS:
        return NOTHING
    backward = sum(one.total for its_name, one, _ in innermost if _BACKWARD(its_name))
    return Finding(
        ID,
        f"{called(name)} calls {len(inside) / measured.steps:,.0f} operators a step, half of them shorter than "
        f"{time(float(np.median(inside)))}: {percent(spans.total, measured.total)} of the time, as samples see it, and "
        "the backward pass has as many. Calling them costs more than what they compute.",
        bound_ns=spans.total + backward,
        numbers={"operators": len(inside), "steps": measured.steps, "sampled_ns": spans.total, "name": name},
        rows=rows,
        assumptions=["its loop can be written with operators over whole tensors, which take little of this time"],
        confirm="profctl top TRACE --step N lists these calls; or compile the function (torch.compile)",
    )


def _operators(facts: Facts) -> tuple[Array, Array]:
    """Starts and durations of operators on the thread of the steps that are in no other, in start order; ns."""
    operator = rules.Named(lambda name: name.startswith("aten::"))
    starts, lasting, reached = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)], np.iinfo(np.int64).min
    for table, at in facts.operators(operator, ("start", "end")):
        start, lasts = table.columns["start"][at], durations(table)[at]
        before = np.maximum.accumulate(np.concatenate([[reached], start + lasts]))
        outer = start >= before[:-1]
        reached = before[-1]
        starts.append(start[outer])
        lasting.append(lasts[outer])
    return np.concatenate(starts), np.concatenate(lasting)
