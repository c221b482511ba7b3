"""Devices wait for the program: a symptom, whose cause may be among the findings above it.

Rule: stretches without work on any device whose next launch began only after they had take 10 % or more of the
measured steps.
Bound: from the begin of each stretch to that launch.
Wrong where: the step is meant to pause (a rate limit, a server without requests). Data loading and waits of the host
look the same from here: it ranks below them.
Source: the host wait of HTA's idle time breakdown; XProf calls 3 % moderate and 15 % high.
"""

from __future__ import annotations

from typing import Final

from profd.answers.calls import Call
from profd.answers.detectors import synchronisation
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent
from profd.answers.spans import Spans

ID: Final = "host-bound"
SHARE_MIN: Final = 0.10
CAUSE_MIN: Final = 0.25  # of the late stretches, for another finding to be what this is a symptom of


def look(facts: Facts) -> Verdict:
    """See the module."""
    late, measured = facts.late_in_part, facts.measured.total
    if late.total < SHARE_MIN * measured:
        return NOTHING
    left = unexplained(facts).total
    explained = "" if left > 0.9 * late.total else f", {percent(left, measured)} outside of data loading and waits"
    return Finding(
        ID,
        f"Devices wait for the program's next launch {percent(late.total, measured)} of the time{explained}: "
        "the host is slower than they are.",
        bound_ns=late.total,
        numbers={"late_ns": late.total, "unexplained_ns": left, "idle_ns": facts.idle_ns},
        rows=facts.work.row[facts.work.start.searchsorted(_longest(facts.late_in_part))].tolist(),
        assumptions=["the program could launch this work earlier"],
        confirm="look at what the thread of the steps does meanwhile (profctl top TRACE; capture with --stacks)",
        symptom_of=[*_causes(facts), "small-kernels", "recompilation", "garbage-collection"],
    )


def _causes(facts: Facts) -> list[str]:
    """Of loading and waits, those in which a quarter of the late stretches lie, or more."""
    late = facts.late_in_part
    spans = {"data-loading": facts.calls(Call.LOADS).spans, synchronisation.ID: synchronisation.after_waits(facts)}
    return [cause for cause, of in spans.items() if late.common(of).total >= CAUSE_MIN * late.total]


def unexplained(facts: Facts) -> Spans:
    """The late stretches of the measured part that are in no call of a DataLoader and follow no wait."""
    found = facts.late_in_part.without(facts.calls(Call.LOADS).spans)
    return found.without(synchronisation.after_waits(facts))


def _longest(late: Spans) -> list[int]:
    order = (late.start - late.end).argsort(kind="stable")[:5]
    ends: list[int] = late.end[order].tolist()
    return ends
