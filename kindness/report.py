"""The table of what was run and what came of it, and each harm with its log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kindness.ledger import Ledger

_HEAD: Final = ("shard", "program", "asked", "recorded", "jobs", "harmed", "kills")


@dataclass
class Row:
    """Of one program, or of a whole shard."""

    asked: int = 0
    recorded: int = 0
    jobs: int = 0
    harmed: int = 0
    kills: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, row: dict[str, Any]) -> None:
        """One line of the ledger."""
        match row["kind"]:
            case "captures":
                self.asked += row["asked"]
                self.recorded += row["recorded"]
                self.outcomes.update(row["outcomes"])
            case "job":
                self.jobs += 1
                self.harmed += bool(row["harm"])
            case "kills":
                self.kills += row["count"]
            case "earlier":
                self.asked += row["asked"]
                self.recorded += row["recorded"]
                self.jobs += row["jobs"]
                self.kills += row["kills"]


def show(ledger: Ledger, sources: str, controls: Collection[str] = ()) -> int:
    """Print it; 1 where a job was harmed by anything but the `controls`."""
    rows = list(ledger.rows(sources))
    print(f"\nsources {sources}, commits {', '.join(sorted({row['commit'] for row in rows})) or 'none'}")
    _print([_HEAD, *_lines(rows)])
    for line in (*_shares(rows), *_skipped(rows), *_harms(rows)):
        print(line)
    return any(row["kind"] == "job" and row["harm"] and row["shard"] not in controls for row in rows)


def _lines(rows: Iterable[dict[str, Any]]) -> Iterable[tuple[str, ...]]:
    table: dict[str, dict[str, Row]] = defaultdict(lambda: defaultdict(Row))
    for row in rows:
        table[row["shard"]][""].add(row)
        if row.get("program"):
            table[row["shard"]][row["program"]].add(row)
    for shard in sorted(table):
        for program in sorted(table[shard]):
            of = table[shard][program]
            counts = (of.asked, of.recorded, of.jobs, of.harmed, of.kills)
            yield (shard if not program else "", program or "all", *(str(count) for count in counts))
        outcomes = ", ".join(f"{count} {name}" for name, count in table[shard][""].outcomes.most_common(12))
        if outcomes:
            yield ("", f"  of captures: {outcomes}")


def _print(lines: list[tuple[str, ...]]) -> None:
    widths = [max(len(line[column]) for line in lines if len(line) == len(_HEAD)) for column in range(len(_HEAD))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip())


def _shares(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    used: Counter[str] = Counter()
    had: Counter[str] = Counter()
    for row in rows:
        if row["kind"] == "usage":
            used[row["shard"]] += row["cpu_seconds"]
            had[row["shard"]] += row["core_seconds"]
    for shard in sorted(had):
        share, hours = 100 * used[shard] / had[shard], had[shard] / 3600
        yield f"{shard}: the jobs took {share:.0f} % of {hours:.2f} core hours"


def _skipped(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    why = {(row["shard"], row["program"]): row["why"] for row in rows if row["kind"] == "skipped"}
    return (f"skipped {shard}/{program}: {reason}" for (shard, program), reason in sorted(why.items()))


def _harms(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    harmed = [row for row in rows if row["kind"] == "job" and row["harm"]]
    return (f"HARMED {row['shard']}/{row['program']}: {row['harm']}\n       {row['log']}" for row in harmed)
