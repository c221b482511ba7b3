"""The memory of a process in looks through its window, as the kernel counts it: stored with the trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

LOOKS_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class ResidentLook:
    """One look; the kernel's counts of pages lag by up to some dozen on each CPU."""

    at_ns: int  # after the first look
    total_bytes: int  # in RAM: RSS
    own_bytes: int  # of these, what is neither a file's nor shared: heaps and stacks


@dataclass(frozen=True, slots=True)
class Resident:
    """All looks that are kept, in order, about evenly over the window. Empty: not known."""

    looks: list[ResidentLook] = field(default_factory=list)
    age_ns: int | None = None  # of the process at the first look; None: not known

    @property
    def lasted_ns(self) -> int:
        """From the first look to the last."""
        return self.looks[-1].at_ns - self.looks[0].at_ns if self.looks else 0

    @property
    def grown_bytes(self) -> int:
        """By which the process's own part grew from the first look to the last; below zero where it shrank."""
        return self.looks[-1].own_bytes - self.looks[0].own_bytes if self.looks else 0
