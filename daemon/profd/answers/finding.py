"""What a detector says: a finding, or why it says nothing. Keys are a contract (docs/json.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

ROWS_SHOWN: Final = 5  # of the evidence: `profctl tree --row` takes them
STEPS_SHOWN: Final = 32


@dataclass(frozen=True, slots=True)
class Finding:
    """A trouble that the rows of a trace support. Gains overlap: bounds are never added up."""

    id: str
    sentence: str  # cause, evidence and size, for a person
    bound_ns: int | None  # of the measured time, this is gone at most once the cause is; None: not a matter of time
    numbers: dict[str, int | float | str]  # what the rule compared, by name
    rows: list[int] = field(default_factory=list)  # at most ROWS_SHOWN, those that weigh most first
    steps: list[int] = field(default_factory=list)  # as `--step` calls them, where it is not about all
    assumptions: list[str] = field(default_factory=list)  # what was taken for granted
    confirm: str = ""  # what to do next to know for sure
    symptom_of: list[str] = field(default_factory=list)  # ids of causes that may explain it: it ranks below all causes


@dataclass(frozen=True, slots=True)
class Silence:
    """A detector that found nothing, or could not look. An empty `lacking`: it looked, and there is nothing."""

    lacking: str = ""  # a sentence: what it would need


NOTHING: Final = Silence()
Verdict = Finding | Silence


def percent(part: int, whole: int) -> str:
    """`12 %`, `0.4 %`."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 1 or not share else f"{share:.1f} %"


def time(ns: int | float) -> str:
    """`3.1 ms`: as people read it, three digits."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`: of a number from 1."""
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def as_json(finding: Finding, rank: int, measured_ns: int) -> dict[str, Any]:
    """A finding in an answer."""
    share = finding.bound_ns / measured_ns if finding.bound_ns is not None and measured_ns else None
    return {
        "rank": rank,
        "id": finding.id,
        "sentence": finding.sentence,
        "bound_ns": finding.bound_ns,
        "bound_share": share,
        "symptom_of": finding.symptom_of,
        "evidence": {
            "rows": finding.rows[:ROWS_SHOWN],
            "numbers": finding.numbers,
            "steps": finding.steps[:STEPS_SHOWN],
        },
        "assumptions": finding.assumptions,
        "confirm": finding.confirm,
    }
