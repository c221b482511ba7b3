"""The program waits for its data.

Rule: in the measured steps, on their thread, `enumerate(DataLoader)#….__next__` takes 10 % or more of the time, not
counting what device work hides. Bound: that time.
Wrong where: another thread holds the GIL while the loader wants it (three of three GIL burners looked like this); the
processes of the loader compete with the program for cores.
Source: XProf's input pipeline analysis calls 5 % of a step moderate and 20 % high. A pair of runs on a GPU, 0 and 4
workers: the bound was 39.6 %, the step became 28 % shorter.
"""

from __future__ import annotations

from typing import Final

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Verdict, percent, time
from profd.query.accounting import LOOKS_MIN

ID: Final = "data-loading"
SHARE_MIN: Final = 0.10


def look(facts: Facts) -> Verdict:
    """See the module."""
    loads = facts.on_step_thread(Call.LOADS)
    waited, measured = facts.exposed(loads.spans).total, facts.measured.total
    if not len(loads) or waited < SHARE_MIN * measured:
        return NOTHING
    alone = "SingleProcess" in facts.name(int(loads.name[0]))
    more = "give it workers (num_workers=4)" if alone else "give it more workers, or less to do for a batch"
    hidden = ", while no device worked" if len(facts.work) else ""
    return Finding(
        ID,
        f"The program waits for its DataLoader {percent(waited, measured)} of the time{hidden} "
        f"({len(loads)} batches in {facts.measured.steps} steps, {time(loads.spans.total / len(loads))} each): {more}.",
        bound_ns=waited,
        numbers={"batches": len(loads), "steps": facts.measured.steps, "waited_ns": waited},
        rows=loads.longest(),
        assumptions=[f"the wait is for data, or for the GIL that another thread holds: {_gil(facts)}"],
        confirm="feed the same batch again and again, and look whether the step becomes as much shorter",
    )


def _gil(facts: Facts) -> str:
    """What is known of the second."""
    thread = facts.kernel_times
    if thread is None or thread.in_gil is None or thread.looks < LOOKS_MIN:
        return "which was not recorded"
    return f"by looks at {facts.thread_name(thread)}, the GIL {percent(thread.in_gil, thread.looks)} of the window"
