"""Tensors are sent one by one: each collective is waited for before the next, and nothing is computed between them.

Rule: on the thread of the steps, collectives of gloo or MPI (`c10d::…`) in runs of 20 or more, between which it calls
no other operators than copies of a tensor and arithmetic of elements, as an average of gradients needs; 9 of 10 of a
run's have ended, as a thread of gloo carries them out (`gloo:…`), before the next is called; 20 or more a step; and
all of these take 10 % or more of the measured steps.
Bound: that time.
Wrong where: another rank comes late to them, which one rank cannot tell; or they are few and large.
Source: DistributedDataParallel's buckets, and `all_reduce_coalesced`: a collective costs a round trip, however small.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profd.answers.calls import Call, Calls
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time
from profd.answers.ranks.names import op_of
from profd.events.table import Array
from profd.query import rules

ID: Final = "single-collectives"
SHARE_MIN: Final = 0.10
RUN_MIN: Final = 20
WAITED_MIN: Final = 0.9
_BETWEEN: Final = re.compile(
    r"aten::(_?(to|copy)_?|_to_copy|clone|detach_?|contiguous|empty\w*|zeros\w*|fill_|zero_|view|reshape|flatten"
    r"|(div|mul|add|sub)_?|resolve_\w+|lift_fresh|item|_local_scalar_dense)\Z"
).match


def look(facts: Facts) -> Verdict:
    """See the module."""
    asks, talks, measured = facts.on_step_thread(Call.ASKS), facts.calls(Call.TALKS), facts.measured
    least = RUN_MIN * max(measured.steps, 1)
    if len(asks) < least or facts.exposed(talks.spans).total < SHARE_MIN * measured.total:
        return NOTHING
    alone = _alone(facts, asks, talks)
    spent = facts.exposed(alone.spans)
    if len(alone) < least or spent.total < SHARE_MIN * measured.total:
        return NOTHING
    kinds, counts = np.unique(alone.name, return_counts=True)
    name = facts.name(int(kinds[counts.argmax()]))
    return Finding(
        ID,
        f"Tensors are sent one by one: {len(alone) / measured.steps:,.0f} collectives a step ({op_of(name) or name}), "
        f"each waited for before the next is called, {percent(spent.total, measured.total)} of the time "
        f"({time(spent.total / len(alone))} each).",
        bound_ns=spent.total,
        numbers={"collectives": len(alone), "steps": measured.steps, "spent_ns": spent.total},
        rows=alone.longest(),
        assumptions=["no other rank comes late to them (profctl ranks), and few large collectives take little time"],
        confirm="send them together: DistributedDataParallel, or one all_reduce of the tensors put end to end",
    )


def _alone(facts: Facts, asks: Calls, talks: Calls) -> Calls:
    """The collectives of runs as the module says, as they were carried out."""
    order = np.argsort(talks.start, kind="stable")
    begins, ends = talks.start[order], talks.end[order]
    # What began between an ask and the next: exactly one, which has ended by then.
    until = np.append(asks.start[1:], np.iinfo(np.int64).max)
    first, last = np.searchsorted(begins, asks.start), np.searchsorted(begins, until)
    place = np.minimum(first, len(order) - 1)
    waited = (last - first == 1) & (ends[place] <= until)
    run = np.searchsorted(_others(facts), asks.start)
    _, of, count = np.unique(run, return_inverse=True, return_counts=True)
    good = (count >= RUN_MIN) & (np.bincount(of, weights=waited) >= WAITED_MIN * count)
    return talks.take(np.sort(order[place[good[of] & waited]]))


def _others(facts: Facts) -> Array:
    """When operators began on the thread of the steps that no average of gradients needs, in order; and steps."""
    named = rules.Named(lambda name: not name.startswith("c10d::") and _BETWEEN(name) is None)
    found = [facts.measured.start]
    found += [table.columns["start"][at] for table, at in facts.operators(named, ("start",))]
    return np.sort(np.concatenate(found))
