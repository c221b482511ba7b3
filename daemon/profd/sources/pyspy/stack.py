"""The stack of a thread, and whether one that was read while its thread ran on may lack outer frames.

While a generator is resumed its frame leads to no other for a moment, and a look that pauses nobody ends there: 2.6 %
of looks at a program that runs generators. Nothing in such a stack says so but where it begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from profd.model.frame import Frame

# Where the main thread begins, with a script or `-m`, and where threading.Thread begins ("Thread._bootstrap", too).
_ROOTS: Final = frozenset({"<module>", "_run_module_as_main", "_bootstrap"})


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread. `thread` is its id as the process knows it; frames innermost first.

    `incomplete`: outer frames may be missing. `joins`: the thread whose end it waits for; `lock_holder`: the one that
    holds the lock it waits for. 0 where there is none or it is not known. `waits_gil`: it waits for the interpreter's.
    `stopped`: a signal has stopped the process.
    """

    thread: int
    name: str
    active: bool
    owns_gil: bool
    frames: tuple[Frame, ...]
    incomplete: bool = False
    joins: int = 0
    lock_holder: int = 0
    waits_gil: bool = False
    stopped: bool = False

    @property
    def begins_as_usual(self) -> bool:
        """Its outermost frame is one that Python's threads begin with; so is none at all."""
        return not self.frames or self.frames[-1].function.rpartition(".")[2] in _ROOTS


def marked(threads: Iterable[ThreadStack]) -> list[ThreadStack]:
    """The same stacks; `incomplete` are those that begin anywhere else."""
    return [dataclasses.replace(thread, incomplete=not thread.begins_as_usual) for thread in threads]


def completed(before: Sequence[ThreadStack], again: Iterable[ThreadStack]) -> list[ThreadStack]:
    """The stacks of `before`; of a later look those that may have been incomplete and are not any more.

    A thread that a C library made begins with any function: one that waits in both looks with equal frames was not
    changing while it was read, so it is complete.
    """
    later = {thread.thread: thread for thread in again}
    return [_completed(thread, later.get(thread.thread)) if thread.incomplete else thread for thread in before]


def _completed(thread: ThreadStack, later: ThreadStack | None) -> ThreadStack:
    if later is None:
        return thread
    if later.begins_as_usual:
        return later
    still = not (thread.active or later.active) and thread.frames == later.frames
    return dataclasses.replace(later if len(later.frames) > len(thread.frames) else thread, incomplete=not still)
