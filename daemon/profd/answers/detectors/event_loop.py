"""A callback of asyncio's event loop waits: nothing else of the loop runs meanwhile.

Rule: on the busiest thread samples see one of the program's functions, with what it calls of the standard library,
below a callback of asyncio (`Handle._run`), and for 10 % or more of the window it waits, even if all the time that the
kernel counted on a CPU or ready for one, and all that looks saw in the GIL, was this function's.
Bound: all of that function's time.
Wrong where: nothing else is to be done meanwhile. Other event loops (uvloop) have no such frame.
Source: /proc/PID/task/TID/schedstat, and samples as py-spy takes them, exact to their period.
"""

from __future__ import annotations

from typing import Final

from profd.answers.detectors.python_functions import called
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent

ID: Final = "event-loop"
SHARE_MIN: Final = 0.1


def look(facts: Facts) -> Verdict:
    """See the module."""
    if not facts.has_samples:
        return Silence("samples beside the recording: a longer window, or --samples 100hz")
    times, measured = facts.kernel_times, facts.measured.total
    if times is None or not times.lasted_ns or not measured:
        return Silence("run times of the thread of the steps")
    in_gil = (times.in_gil or 0) / times.looks if times.looks else 0.0
    elsewhere = (times.ran_ns + times.queued_ns) / times.lasted_ns + in_gil
    name, seen, rows = next(iter(facts.sampled_in_callbacks()), ("", 0, []))
    waits = round(seen - elsewhere * measured)
    if waits < SHARE_MIN * measured:
        return NOTHING
    return Finding(
        ID,
        f"{called(name)} blocks asyncio's event loop: it takes {percent(seen, measured)} of the time of "
        f"{facts.thread_name(times)} and waits for {percent(waits, measured)} or more, and no other task runs "
        "meanwhile: await what it waits for, or call it by asyncio.to_thread.",
        bound_ns=seen,
        numbers={"sampled_ns": seen, "waits_ns": waits, "name": name},
        rows=rows,
        assumptions=["samples are exact to their period, and other tasks are ready meanwhile"],
        confirm="profctl tree TRACE --merged shows who calls it, and on what it waits",
    )
