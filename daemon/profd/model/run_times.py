"""What the kernel counted of the threads of a process while it was recorded: stored with the trace."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

THREADS_KEPT: Final = 32
RUNS_KEPT: Final = 256
MOMENTS_KEPT: Final = 512  # of looks: of a longer window every second, fourth … one
RUNS, IN_GIL, IN_LOCK, OFF, UNSEEN = "rgl.-"  # a thread in a look; OFF: off the CPU for anything else

_OF_PROFD: Final = ("profd-agent", "profclient-prof")  # the kernel keeps 15 bytes; what they start is called alike

_PYTHON: Final = re.compile(r"python[\d.]*\Z").match


def of_profd(name: str | None) -> bool:
    """Whether a thread of this name is one that profd has started in the process: no answer blames it."""
    return name is not None and name.startswith(_OF_PROFD)


def python_name(name: str, main: bool) -> str:
    """A thread's name as Python has it, from the kernel's: of a first thread that is its program's, or was not read."""
    return "MainThread" if main and (not name or _PYTHON(name)) else name


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """One thread between two looks, `lasted_ns` apart. What is neither `ran_ns` nor `queued_ns` it was off the CPU."""

    id: int  # as the process knows it
    name: str  # as the kernel has it, 15 bytes; the process's own choice
    lasted_ns: int
    ran_ns: int  # on a CPU
    queued_ns: int  # ready to run, and waiting for a CPU
    looks: int = 0  # in between at what it waits for; 0: at this thread, or at all, none were made
    in_gil: int | None = None  # of these, when it waited for the GIL; None: not known where that is
    in_lock: int = 0  # for another lock, a condition or a queue: a futex
    states: str = ""  # a letter for each of `RunTimes.looked_ns`; RUNS: on a CPU, or ready for one


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Of one process. Times in ns; the kernel adds to a thread that runs at its ticks: exact to 10 ms."""

    lasted_ns: int = 0  # between the looks; 0: not known
    cores: int = 0  # of the host
    threads: list[ThreadTimes] = field(default_factory=list)  # that ran or waited, the busiest first; THREADS_KEPT
    others: int = 0  # threads that ran, beyond those
    others_ran_ns: int = 0
    idle: int = 0  # threads that did not run at all
    idle_ids: list[tuple[int, int]] = field(
        default_factory=list
    )  # runs of their ids, first and last; the first RUNS_KEPT
    looked_ns: list[int] = field(default_factory=list)  # when it was looked at, ascending, in Unix ns; MOMENTS_KEPT
    names: dict[str, str] = field(default_factory=dict)  # of threads by id, as the process says that Python has them
    unseen: int = 0  # threads that were not looked at (RUN_TIMES_THREADS_MAX), began or ended between the looks
