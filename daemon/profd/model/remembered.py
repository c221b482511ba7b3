"""What torch's flight recorder remembered of a process's collectives when its window ended: stored with the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CALLS_KEPT: Final = 1000  # more than any flight recorder keeps that is asked at a window's end

REMEMBERED: Final = "remembered"  # the format of a raw file: JSON, as torch writes it


@dataclass(frozen=True, slots=True)
class RememberedCall:
    """One collective that the process called; none between two ranks."""

    group: str  # a name that all ranks of the group have for it
    sequence: int  # within the group
    operation: str  # all_reduce
    elements: int | None  # of its inputs together; None: not known
    created_ns: int  # Unix ns at which it was called


@dataclass(frozen=True, slots=True)
class Remembered:
    """All of them, in the order in which they were called. Empty: it was not asked."""

    calls: list[RememberedCall] = field(default_factory=list)
