"""What the kernel counted of a process before, while and after it was recorded: a recording's cost, seen outside."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time of one process; times in ns and counts are sums over its threads.

    Threads that ended in it are not counted. The kernel adds to a thread that runs at its ticks: exact to 10 ms.
    """

    lasted_ns: int
    cpu_ns: int
    run_queue_ns: int  # ready, and waiting for a CPU
    waits: int  # voluntary context switches: for a lock, a file, a timer
    preemptions: int  # involuntary ones


@dataclass(frozen=True, slots=True)
class Load:
    """Before the window, in it, and in the seconds after it. None: not known."""

    before: Stretch | None = None
    during: Stretch | None = None
    after: Stretch | None = None
