"""Collectives that no computation hides.

Rule: kernels of NCCL or RCCL run while no other kernel does for 5 % or more of the measured steps. Bound: that time.
Wrong where: another rank was late: one rank's trace cannot tell a slow collective from waiting in it.
Source: the exposed communication of HTA; TraceLens warns at 5 %.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent
from profd.answers.ranks.names import is_kernel
from profd.answers.spans import Spans
from profd.events import Kind

ID: Final = "exposed-communication"
SHARE_MIN: Final = 0.05


def look(facts: Facts) -> Verdict:
    """See the module."""
    work = facts.work
    kernel = work.kind == Kind.KERNEL
    talks = kernel & np.isin(work.name, [name for name in np.unique(work.name).tolist() if is_kernel(facts.name(name))])
    talking, computing = (Spans.union(work.start[at], work.end[at]) for at in (talks, kernel & ~talks))
    collectives = work.take(np.flatnonzero(talks))
    exposed, measured = facts.measured_part(talking.without(computing)), facts.measured.total
    if exposed.total < SHARE_MIN * measured or not exposed.total:
        return NOTHING
    bare = exposed.within(collectives.start, collectives.end)
    whole = facts.measured_part(talking).total
    return Finding(
        ID,
        f"Collectives run {percent(exposed.total, measured)} of the time with no computation beside them "
        f"({percent(exposed.total, whole)} of all communication is exposed): transfer, or waiting for a late rank.",
        bound_ns=exposed.total,
        numbers={"collectives": int((bare > 0).sum()), "exposed_ns": exposed.total, "communication_ns": whole},
        rows=collectives.row[np.argsort(-bare, kind="stable")[:5]].tolist(),
        assumptions=["one rank's trace cannot tell transfer from waiting for another rank"],
        confirm="record all ranks at once, and compare how long the same collective took on each",
    )
