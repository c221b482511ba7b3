"""The thread of the steps waits for a lock, a condition or a queue in one of the program's functions.

Rule: samples see that thread in a function that is not torch's, with what it calls of the standard library, outside of
operators, the DataLoader and device work; of ten or more looks within it some see it in a futex that is not the GIL,
five or more, and by their share it waits so for 10 % or more of the measured time.
Bound: that time.
Wrong where: the wait is meant (a queue that paces the loop). Programs whose ranks talk are left out: they wait for each
other like this. Locks of processes, files and sockets are no futexes of a thread.
Source: looks from outside, ten a second, and samples (docs/decisions/0037-waits-by-looks.md).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profd.answers.calls import Call
from profd.answers.detectors.python_functions import called, is_torchs, run_times
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent
from profd.events.table import Array
from profd.model.run_times import IN_LOCK, UNSEEN, ThreadTimes
from profd.query.accounting import LOOKS_MIN

ID: Final = "lock-wait"
SHARE_MIN, SEEN_MIN = 0.1, 5
FUNCTIONS_MAX: Final = 5  # those with most time
_TALKS: Final = re.compile(r"(gloo|nccl|c10d)(:|Dev|Kernel|_)|record_param_comms")


def look(facts: Facts) -> Verdict:
    """See the module."""
    times, measured = run_times(facts), facts.measured
    if isinstance(times, Silence):
        return times
    looked = facts.reader.meta.run_times.looked_ns
    if times.looks < LOOKS_MIN or len(times.states) != len(looked):
        return Silence(f"{LOOKS_MIN} looks at what the thread of the steps waits for")
    if not measured.steps or any(map(_TALKS.match, facts.reader.dictionaries["name"].values)):
        return NOTHING
    spans = measured.spans.without(facts.on_step_thread(Call.LOADS).spans)
    for name, seen, rows in facts.sampled_in(spans)[:FUNCTIONS_MAX]:
        share = 0.0 if is_torchs(name) else _locked(facts, times, rows)
        if seen * share >= SHARE_MIN * measured.total:
            return _finding(facts, times, (name, seen, rows), share)
    return NOTHING


def _locked(facts: Facts, times: ThreadTimes, rows: list[int]) -> float:
    """The part of the looks within these rows that saw the thread wait for a lock; 0 where few did."""
    at = np.array(facts.reader.meta.run_times.looked_ns, dtype=np.int64)
    states: Array = np.array(list(times.states))
    table = facts.reader.rows(np.array(sorted(rows)), ("start", "end"), args=False)
    after = np.searchsorted(at, table.columns["start"]), np.searchsorted(at, table.columns["end"])
    inside = np.zeros(len(at) + 1, dtype=np.int64)
    for places, more in zip(after, (1, -1), strict=True):
        np.add.at(inside, places, more)
    within = (np.cumsum(inside)[:-1] > 0) & (states != UNSEEN)
    locked = within & (states == IN_LOCK)
    return float(locked.sum() / within.sum()) if within.sum() >= LOOKS_MIN and locked.sum() >= SEEN_MIN else 0.0


def _finding(facts: Facts, times: ThreadTimes, seen: tuple[str, int, list[int]], share: float) -> Finding:
    name, lasted, rows = seen
    waits = round(lasted * share)
    return Finding(
        ID,
        f"{facts.thread_name(times)} waits for a lock, a condition or a queue {percent(waits, facts.measured.total)} "
        f"of the time, in {called(name)}: another thread of the program holds it, or is to bring what it waits for.",
        bound_ns=waits,
        numbers={"sampled_ns": lasted, "waits_ns": waits, "name": name},
        rows=rows,
        assumptions=["looks ten times a second see all of that function alike"],
        confirm="profctl where shows what the other threads do, and of many locks which of them holds it",
    )
