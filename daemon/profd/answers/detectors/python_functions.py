"""A function of the program computes in Python, outside operators.

Rule: on the thread of the steps (without steps the busiest one) samples see one of the program's functions, with what
it calls of the standard library, for 25 % or more of the measured time, outside of operators and of what device work
hides, and of garbage collections, and even if all that the kernel counted as off the CPU was this function's.
Bound: that time, less what was off the CPU.
Not looked at: torch's call of its autograd engine, which runs no Python there: it waits for collectives of DDP, or does
what is around operators. Hooks in Python have samples of their own.
Wrong where: the function is the program's purpose. A C function without an operator is its caller's, to a sample.
Source: /proc/PID/task/TID/schedstat, and samples as py-spy takes them, exact to their period.
"""

from __future__ import annotations

import re
from typing import Final

from profd.answers.calls import Call
from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent
from profd.model.run_times import ThreadTimes

ID: Final = "python-function"
SHARE_MIN: Final = 0.25
_TORCH: Final = re.compile(r"(.*/)?torch/")
_ENGINE: Final = re.compile(r"torch/autograd/graph\.py\(\d+\): _engine_run_backward\Z")
_NAME: Final = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)


def run_times(facts: Facts) -> ThreadTimes | Silence:
    """The kernel's counts of the thread of the steps, where samples saw it, too; else what is missing."""
    if not facts.has_samples:
        return Silence("samples beside the recording: a longer window, or --samples 100hz")
    times = facts.kernel_times
    if times is None or not times.lasted_ns or not facts.measured.total:
        return Silence("run times of the thread of the steps")
    return times


def look(facts: Facts) -> Verdict:
    """See the module."""
    times, measured = run_times(facts), facts.measured.total
    if isinstance(times, Silence):
        return times
    off = max(0.0, 1 - (times.ran_ns + times.queued_ns) / times.lasted_ns)
    spans = facts.measured.spans.without(facts.on_step_thread(Call.COLLECTS).spans)
    seen_in = (one for one in facts.sampled_in(spans) if not _ENGINE.search(one[0]))
    name, seen, rows = next(seen_in, ("", 0, []))
    bound = round(seen - off * measured)
    if bound < SHARE_MIN * measured:
        return NOTHING
    return Finding(
        ID,
        f"{called(name)} takes {percent(seen, measured)} of the time of {facts.thread_name(times)}, "
        "in Python and outside operators, as samples see it.",
        bound_ns=bound,
        numbers={"sampled_ns": seen, "off_cpu_share": round(off, 3), "name": name},
        rows=rows,
        assumptions=["samples are exact to their period, and C functions that are no operators count for their caller"],
        confirm="profctl tree TRACE --merged shows who calls it; --stacks --c-calls records each call",
    )


def is_torchs(name: str) -> bool:
    """Whether a function, as samples name it, stands in a file of torch's."""
    return _TORCH.match(name) is not None


def called(name: str) -> str:
    """`Metric.compute (train.py:10)`, of a name as rows have it."""
    found = _NAME.fullmatch(name)
    return f"{found[3]} ({found[1].rpartition('/')[2]}:{found[2]})" if found else name
