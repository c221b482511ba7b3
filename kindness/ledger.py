"""Results as JSON lines that add up over runs: every line names the sources that it was had with."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

from kindness import place

FILE: Final = "results.jsonl"
KEPT: Final = place.ROOT / "kindness" / "kept.jsonl"  # sums, which stay with the sources


@dataclass(frozen=True, slots=True)
class Captures:
    """Processes that captures were asked of. One `program` is one row of the report."""

    shard: str
    program: str
    asked: int = 0
    recorded: int = 0  # stored or partial, with events in the trace
    outcomes: dict[str, int] = field(default_factory=dict)  # "STORED", "REFUSED over_limit", ...: how often
    kind: str = "captures"


@dataclass(frozen=True, slots=True)
class Job:
    """One program that has ended. `harm` says what was wrong, empty where nothing was."""

    shard: str
    program: str
    harm: str = ""
    log: str = ""  # kept of harmed ones
    kind: str = "job"


@dataclass(frozen=True, slots=True)
class Kills:
    """Daemons that were killed, by SIGKILL, under captures."""

    shard: str
    count: int
    kind: str = "kills"


@dataclass(frozen=True, slots=True)
class Usage:
    """What the jobs of a run took of the machine, all cores together."""

    shard: str
    cpu_seconds: float
    core_seconds: float  # wall time times cores
    kind: str = "usage"


@dataclass(frozen=True, slots=True)
class Skipped:
    """What could not run here, and why."""

    shard: str
    program: str
    why: str
    kind: str = "skipped"


@dataclass(frozen=True, slots=True)
class Earlier:
    """The sum of what one program came to on a machine that is no more: rows of `kindness/kept.jsonl`."""

    shard: str
    program: str  # empty: what belongs to no program, as kills
    asked: int = 0
    recorded: int = 0
    jobs: int = 0
    kills: int = 0
    kind: str = "earlier"


class Line(Protocol):
    """A dataclass, which names what it is. One with a `harm` is not kept."""

    @property
    def kind(self) -> str:
        """Of the row."""
        ...


@dataclass(frozen=True, slots=True)
class Sums:
    """How rows become sums: the counts of each kind that has some, and the line that holds a sum of them."""

    counted: Mapping[str, Callable[[dict[str, Any]], dict[str, int]]]
    line: Callable[..., Line]  # of a shard, a program, and the counts


class Ledger:
    """Appends; several processes may do so at once, since a line is one write."""

    def __init__(self, folder: Path, kept: Path, sums: Sums | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / FILE
        self._kept = kept
        self._sums = sums or _SUMS

    def logs(self, shard: str) -> Path:
        """The folder of what jobs of this shard say."""
        folder = self.folder / "logs" / shard
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def add(self, line: Line) -> None:
        """Write one result down."""
        row = {"sources": place.digest(), "commit": place.commit(), "time": int(time.time()), **asdict(cast(Any, line))}
        _append(self.path, [row])

    def rows(self, sources: str) -> Iterator[dict[str, Any]]:
        """What was written down for these sources (`place.digest`), sums of other machines first."""
        for path in (self._kept, self.path):
            for row in _read(path):
                if row["sources"] == sources:
                    yield row

    def keep(self, sources: str) -> None:
        """Move the results of these sources to the sums.

        Raises ValueError where a job was harmed: that is to be looked at first.
        """
        counted, sums = self._sums.counted, dict[tuple[str, str], Counter[str]]()
        for row in self.rows(sources):
            if row.get("harm"):
                raise ValueError(f"{row['shard']}/{row['program']} was harmed: {row['harm']}")
            if row["kind"] in counted:
                key = (row["shard"], row.get("program", ""))
                sums.setdefault(key, Counter()).update(counted[row["kind"]](row))
        others = [row for row in _read(self._kept) if row["sources"] != sources]
        ours = [
            {
                "sources": sources,
                "commit": place.commit(),
                **asdict(cast(Any, self._sums.line(shard, program, **counts))),
            }
            for (shard, program), counts in sorted(sums.items())
        ]
        rest = [row for row in _read(self.path) if row["sources"] != sources or row["kind"] not in counted]
        for path, rows in ((self._kept, [*others, *ours]), (self.path, rest)):
            new = path.with_suffix(".new")
            new.unlink(missing_ok=True)
            _append(new, rows)
            new.rename(path)


_SUMS: Final = Sums(
    {
        "captures": lambda row: {"asked": row["asked"], "recorded": row["recorded"]},
        "job": lambda row: {"jobs": 1},
        "kills": lambda row: {"kills": row["count"]},
        "earlier": lambda row: {name: row[name] for name in ("asked", "recorded", "jobs", "kills")},
    },
    Earlier,
)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _append(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for row in rows:
            os.write(descriptor, json.dumps(row).encode() + b"\n")
    finally:
        os.close(descriptor)


class Tally:
    """Counts outcomes of captures until `flush` writes them down. Threads share one under their own lock."""

    def __init__(self, ledger: Ledger, shard: str) -> None:
        self._ledger, self._shard = ledger, shard
        self._outcomes: dict[str, Counter[str]] = {}
        self._recorded: Counter[str] = Counter()
        self.recorded = 0  # in all, flushed or not

    def count(self, program: str, outcome: str, recorded: bool) -> None:
        """One process of one capture has come to its end."""
        self._outcomes.setdefault(program, Counter())[outcome] += 1
        self._recorded[program] += recorded
        self.recorded += recorded

    def flush(self) -> None:
        """Write down what came since the last time."""
        for program, outcomes in self._outcomes.items():
            recorded = self._recorded[program]
            self._ledger.add(Captures(self._shard, program, outcomes.total(), recorded, dict(outcomes)))
        self._outcomes, self._recorded = {}, Counter()
