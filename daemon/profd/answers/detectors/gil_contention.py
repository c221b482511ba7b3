"""The thread of the steps wants the interpreter's lock, which another thread of the program has.

Rule: of ten or more looks at the thread (without steps the busiest one) 10 % or more, and three or more, saw it wait
for the GIL. The busiest other thread of the program is named, as what may hold it.
Bound: that share of the measured time.
Wrong where: chance has it, of few looks: a thread that waits 3 % of the time is seen so in 3 of 27 in one of 20
windows. The holder waits for a CPU, or for a file without giving it up: then that is the cause. A thread that is
named may run native code alone.
Source: looks from outside, ten a second, at what the thread's futex is (docs/decisions/0037-waits-by-looks.md).
"""

from __future__ import annotations

from typing import Final

from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent
from profd.model.run_times import ThreadTimes, of_profd
from profd.query.accounting import LOOKS_MIN

ID: Final = "gil-contention"
SHARE_MIN, SEEN_MIN = 0.1, 3


def look(facts: Facts) -> Verdict:
    """See the module."""
    thread = facts.kernel_times
    if thread is None or thread.in_gil is None or thread.looks < LOOKS_MIN:
        return Silence(f"{LOOKS_MIN} looks at what the thread of the steps waits for, or where the GIL is")
    if thread.in_gil < max(SEEN_MIN, SHARE_MIN * thread.looks):
        return NOTHING
    share = thread.in_gil / thread.looks
    return Finding(
        ID,
        f"{facts.thread_name(thread)} waits for the GIL {percent(thread.in_gil, thread.looks)} of the time: another "
        f"thread runs Python, or holds it{_who(facts, thread)}.",
        bound_ns=round(facts.measured.total * share),
        numbers={"looks": thread.looks, "in_gil": thread.in_gil},
        assumptions=["looks ten times a second see all of the window alike"],
        confirm="profctl where shows what the other threads do; move such work to a process (multiprocessing)",
    )


def _who(facts: Facts, thread: ThreadTimes) -> str:
    others = (one for one in facts.reader.meta.run_times.threads if one.id != thread.id and not of_profd(one.name))
    busiest = max(others, key=lambda one: one.ran_ns, default=None)
    if busiest is None or not busiest.lasted_ns or not busiest.ran_ns:
        return ""
    return f" (of the others {facts.thread_name(busiest)} runs most, {percent(busiest.ran_ns, busiest.lasted_ns)})"
