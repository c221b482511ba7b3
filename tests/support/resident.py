"""Looks at the memory of a process, with numbers that are easy to add up."""

from __future__ import annotations

from typing import Final

from profd.model.resident import Resident, ResidentLook

MB: Final = 1_000_000
SECOND: Final = 1_000_000_000
FILES: Final = 50 * MB  # beside what is its own


def looked(own: list[int], lasting: float = 4.0, age_ns: int | None = None) -> Resident:
    """Looks over so many seconds, evenly apart, at a process that was so old at the first."""
    gaps = max(1, len(own) - 1)
    at = [round(n * lasting * SECOND / gaps) for n in range(len(own))]
    return Resident([ResidentLook(when, each + FILES, each) for when, each in zip(at, own, strict=True)], age_ns)
