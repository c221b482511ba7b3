"""What runs come to, as lines of a ledger that add up over runs (`kindness.ledger`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kindness import place
from kindness.ledger import Ledger, Sums

SCRATCH: Final = Path(os.environ.get("SOAK_DIR", place.ROOT / ".soak"))
KEPT: Final = place.ROOT / "soak" / "kept.jsonl"
COUNTED: Final = ("kills", "captures", "events", "lost", "doubled", "endless")

KILLS, CAPTURES, FAULTS = "kills", "captures", "faults"  # shards


@dataclass(frozen=True, slots=True)
class Counts:
    """One kill, one capture that was looked at, one fault, or a sum of many.

    `program`: the victim of a kill, the source of a capture. `harm`: what was wrong, empty where nothing was; `log`:
    the directory in which all of it still lies.
    """

    shard: str
    program: str
    kills: int = 0
    captures: int = 0
    events: int = 0  # that were looked for, one by one
    lost: int = 0
    doubled: int = 0
    endless: int = 0
    harm: str = ""
    log: str = ""
    kind: str = "counts"


@dataclass(frozen=True, slots=True)
class Slopes:
    """How one thing changed in a run of long use: by 1,000 captures, with its 95 % interval."""

    program: str
    captures: int
    questions: int
    settled: int  # captures that were not looked at
    slope: float
    low: float
    high: float
    least: int
    most: int
    shard: str = "slopes"
    kind: str = "slopes"


def _summed(row: dict[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in COUNTED}


def ledger(folder: Path = SCRATCH, kept: Path = KEPT) -> Ledger:
    """Where results go, and their sums."""
    return Ledger(folder, kept, Sums({"counts": _summed}, Counts))
