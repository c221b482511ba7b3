"""The thread of the steps is ready to run, and waits for a CPU.

Rule: the kernel counted that it waited in a run queue for 10 % or more of the window; without steps, the busiest
thread did.
Bound: that share of the measured time.
Wrong where: the load was of the moment, such as a capture's own sampler on a host of few cores.
Source: /proc/PID/task/TID/schedstat, the second number (the kernel's sched-stats page).
"""

from __future__ import annotations

from typing import Final

from profd.answers.facts import Facts
from profd.answers.finding import NOTHING, Finding, Silence, Verdict, percent
from profd.query.accounting import why_no_times, window_of

ID: Final = "cpu-contention"
SHARE_MIN: Final = 0.10
OWN_MIN: Final = 0.9  # of the cores: then it is the program itself that wants more than there are
_FEWER: Final = "record again with fewer threads (OMP_NUM_THREADS, torch.set_num_threads) or more cores"
_OTHERS: Final = (
    "look for other busy programs on the host, and at cpu.max of the program's cgroup; record again without them"
)


def look(facts: Facts) -> Verdict:
    """See the module."""
    meta = facts.reader.meta
    window = window_of(meta)
    why = why_no_times(meta, window[1] - window[0]) if window else "the trace is empty"
    thread = None if why else facts.kernel_times
    if thread is None or not thread.lasted_ns:
        return Silence(f"run times of threads: {why or 'those of the thread of the steps are not known'}")
    queued = min(thread.queued_ns, thread.lasted_ns)  # two counts that are not taken in one moment
    waited = queued / thread.lasted_ns
    if waited < SHARE_MIN:
        return NOTHING
    times = meta.run_times
    used = (sum(each.ran_ns for each in times.threads) + times.others_ran_ns) / times.lasted_ns
    # What one thread waits for its siblings have only where they ran for as long.
    siblings = used - thread.ran_ns / thread.lasted_ns
    own = bool(times.cores) and used >= OWN_MIN * times.cores and siblings >= waited
    whose = (
        "the program's own threads want more"
        if own
        else "other programs use the rest, or a limit of its cgroup holds it"
    )
    of_cores = f" of {times.cores}" if times.cores else ""
    share = percent(queued, thread.lasted_ns)
    return Finding(
        ID,
        f"{facts.thread_name(thread)} waits for a CPU {share} of the window: "
        f"the program uses {used:.2g}{of_cores} cores, and {whose}.",
        bound_ns=round(facts.measured.total * waited),
        numbers={
            "run_queue_ns": queued,
            "looked_at_ns": thread.lasted_ns,
            "cores_used": round(used, 2),
            "cores": times.cores,
        },
        assumptions=["the waits are spread evenly over the window, and the step waits for this thread"],
        confirm=_FEWER if own else _OTHERS,
    )
