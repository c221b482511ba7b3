"""A callback of asyncio's event loop waits: nothing else of the loop runs meanwhile.

Rule: on the busiest thread samples see one of the program's functions, with what it calls of the standard library,
below a callback of asyncio (`Handle._run`), and for 10 % or more of the window it waits: by ten or more looks at the
thread while it is in that function, which see it off the CPU and not in want of the GIL. With fewer looks: even if all
the time that the kernel counted on a CPU or ready for one, and all looks that saw it in the GIL, were there.
Bound: all of that function's time.
Wrong where: nothing else is to be done meanwhile. Other event loops (uvloop) have no such frame.
Source: /proc/PID/task/TID/schedstat, and samples as py-spy takes them, exact to their period.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profd.answers.detectors.python_functions import called, run_times
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent
from profd.model.run_times import IN_LOCK, OFF, UNSEEN, ThreadTimes
from profd.query.accounting import LOOKS_MIN

ID: Final = "event-loop"
SHARE_MIN: Final = 0.1


def look(facts: Facts) -> Verdict:
    """See the module."""
    times, measured = run_times(facts), facts.measured.total
    if isinstance(times, Silence):
        return times
    name, seen, rows = next(iter(facts.sampled_in_callbacks()), ("", 0, []))
    share = _off_share(facts, times, rows)
    waits = round(seen - _elsewhere(times) * measured) if share is None else round(seen * share)
    if waits < SHARE_MIN * measured:
        return NOTHING
    return Finding(
        ID,
        f"{called(name)} blocks asyncio's event loop: it takes {percent(seen, measured)} of the time of "
        f"{facts.thread_name(times)} and waits for {percent(waits, measured)}, and no other task runs "
        "meanwhile: await what it waits for, or call it by asyncio.to_thread.",
        bound_ns=seen,
        numbers={"sampled_ns": seen, "waits_ns": waits, "name": name},
        rows=rows,
        assumptions=["samples are exact to their period, and other tasks are ready meanwhile"],
        confirm="profctl tree TRACE --merged shows who calls it, and on what it waits",
    )


def _off_share(facts: Facts, times: ThreadTimes, rows: Sequence[int]) -> float | None:
    """The part of the looks within these rows that saw the thread wait. None: too few say something."""
    looked = facts.reader.meta.run_times.looked_ns
    if not rows or len(times.states) != len(looked):
        return None
    at, states = np.array(looked, dtype=np.int64), np.array(list(times.states))
    table = facts.reader.rows(np.array(sorted(rows)), ("start", "end"), args=False)
    spans = zip(table.columns["start"].tolist(), table.columns["end"].tolist(), strict=True)
    within = np.any([(at >= start) & (at < end) for start, end in spans], axis=0) & (states != UNSEEN)
    if within.sum() < LOOKS_MIN:
        return None
    return float(np.isin(states[within], (OFF, IN_LOCK)).mean())


def _elsewhere(times: ThreadTimes) -> float:
    """The share of its time in which the thread did not wait, or wanted the GIL."""
    in_gil = (times.in_gil or 0) / times.looks if times.looks else 0.0
    return (times.ran_ns + times.queued_ns) / times.lasted_ns + in_gil
