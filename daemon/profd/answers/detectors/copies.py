"""Copies between host and device that no kernel hides.

Rule: copies from the host or to it run while no kernel does for 2 % or more of the measured steps. Bound: that time.
Wrong where: the window holds few steps; the next kernel needs the copy at once and nothing else is left to do.
Source: TraceLens warns of copies above 5 %; PyTorch's tuning guide on pinned memory and `non_blocking=True`.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent
from profd.answers.spans import Spans
from profd.answers.work import NO_PLACE, Work, places_of
from profd.events import NO_CODE, Kind
from profd.events.table import Array

ID: Final = "exposed-copies"
SHARE_MIN: Final = 0.02
STEPS_MIN: Final = 2
_WITH_HOST: Final = re.compile(r"HtoD|DtoH|H2D|D2H")


def look(facts: Facts) -> Verdict:
    """See the module."""
    work, measured = facts.work, facts.measured
    copies = work.take(np.flatnonzero((work.kind == Kind.MEMCPY) & measured.spans.holds(work.start)))
    names, code = np.unique(copies.name, return_inverse=True)
    crossing = np.array([_WITH_HOST.search(facts.name(name)) is not None for name in names.tolist()], dtype=bool)
    copies = copies.take(np.flatnonzero(crossing[code]) if len(names) else np.zeros(0, dtype=np.int64))
    kernels = work.kind == Kind.KERNEL
    exposed = Spans.union(copies.start, copies.end).without(Spans.union(work.start[kernels], work.end[kernels]))
    if measured.steps < STEPS_MIN or not exposed.total or exposed.total < SHARE_MIN * measured.total:
        return NOTHING
    bare = exposed.within(copies.start, copies.end)
    most = facts.name(int(copies.name[np.argsort(-bare, kind="stable")[0]]))
    pageable = " (pageable memory: pin it)" if "Pageable" in most else ""
    return Finding(
        ID,
        f"Copies between host and device run {percent(exposed.total, measured.total)} of the time with no kernel "
        f"beside them ({len(copies) / measured.steps:.3g} a step), most in {most}{pageable}{_by(facts, copies, bare)}.",
        bound_ns=exposed.total,
        numbers={"copies": len(copies), "exposed_ns": exposed.total},
        rows=copies.row[np.argsort(-bare, kind="stable")[:5]].tolist(),
        assumptions=["there is computation that does not need what is copied"],
        confirm="pin the memory, copy with non_blocking=True on a stream of its own, and copy the next batch early",
    )


def _by(facts: Facts, copies: Work, bare: Array) -> str:
    """`, called by aten::to of train.py(12): loop`: by whom most of that time was called; empty: it is not known."""
    calls = facts.calls(Call.COPIES)
    place = places_of(calls.row, copies.call)
    known = np.flatnonzero(place != NO_PLACE)
    callers = np.stack([calls.op[place[known]], calls.function[place[known]]], axis=1)
    if not len(known):
        return ""
    found, code = np.unique(callers, axis=0, return_inverse=True)
    op, function = found[np.bincount(code.ravel(), weights=bare[known]).argmax()].tolist()
    named = [facts.name(one) for one in (op, function) if one != NO_CODE]
    return f", called by {' of '.join(named)}" if named else ""
