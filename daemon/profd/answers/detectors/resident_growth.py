"""The memory of the process grows through the window.

Rule: in looks through the window, 20 at least in 1.5 s or more, the least of what is the process's own (RSS without
files and shared memory) is in each quarter more than in the quarter before, each time by 10 to 70 % of the growth in
all, the first time by 50 % at most. That growth is 1 MiB or more, 0.1 % or more of what there was, and 60 % or more
of what comes and goes within a quarter. A process that is younger than 30 s, and whose measured steps are less than
half of the looks, may still import: of it nothing is said.
Bound: none, it costs no time.
Wrong where: a cache still fills, a program without steps takes longer to start, or garbage waits for a collection that
comes less often than the window is long. It says nothing of tensors in shared memory, on devices, or in room that the
heap already had.
Source: /proc/PID/statm (proc(5)); a level, not a slope, as in memory_growth.
"""

from __future__ import annotations

from typing import Final

from profd.answers.detectors import memory_growth
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, time
from profd.query.resident import LASTED_MIN_NS, LOOKS_MIN, YOUNG_NS, may_still_start, steady, too_few

ID: Final = "memory-grows"
_CONFIRM: Final = (
    "profctl start --pid PID --memory --stacks names the tensors that stay, where PyTorch runs in an attached process; "
    "tracemalloc names other objects of Python"
)


def look(facts: Facts) -> Verdict:
    """See the module."""
    resident = facts.reader.meta.resident
    if not resident.looks:
        return Silence("the memory of the process was not looked at")
    if too_few(resident):
        return Silence(f"{LOOKS_MIN} looks at the memory of the process, in a window of {time(LASTED_MIN_NS)} or more")
    if may_still_start(resident, facts.measured.total if facts.measured.steps else 0):
        return Silence(
            f"the process is {time(resident.age_ns or 0)} old and marks steps for less than half of the window, so "
            f"that its memory may grow because it starts: record it again when it is {time(YOUNG_NS)} old"
        )
    grown, first, last = steady(resident), resident.looks[0], resident.looks[-1]
    if grown is None:
        return NOTHING
    rate = grown * 1e3 / resident.lasted_ns  # MB/s
    return Finding(
        ID,
        f"The memory of the process grows steadily, by {rate:.3g} MB/s ({grown / 1e6:.3g} MB in the "
        f"{time(resident.lasted_ns)} of the looks, to {last.own_bytes / 1e6:,.0f} MB): something may be kept.",
        bound_ns=None,
        numbers={
            "grown_bytes": grown,
            "lasted_ns": resident.lasted_ns,
            "own_begin_bytes": first.own_bytes,
            "own_end_bytes": last.own_bytes,
            "looks": len(resident.looks),
        },
        assumptions=[
            "the program is past its start, no cache of it is still filling, and no garbage waits for a collection"
        ],
        confirm=_CONFIRM,
        symptom_of=[memory_growth.ID],
    )
