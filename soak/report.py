"""Tables of what runs came to, for people and for docs/reliability.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kindness import place
from kindness.ledger import Ledger
from soak.counts import CAPTURES, COUNTED, KEPT, KILLS
from soak.killing import SHARES
from soak.usage import UNITS

DOCUMENT: Final = place.ROOT / "docs" / "reliability.md"
SLOPES: Final = KEPT.with_name("slopes.json")
_MARKS: Final = ("<!-- {}: made by `python -m soak --keep` -->", "<!-- end of {} -->")
_HEAD: Final = ("sources", *SHARES, "kills", "captures", "events", "lost", "doubled", "without an end")

Row = dict[str, Any]


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each state of the sources, and their sum."""
    yield f"| {' | '.join(_HEAD)} |"
    yield f"|{'---|' * len(_HEAD)}"
    by_sources: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "counts":
            by_sources.setdefault(row["sources"], []).append(row)
    for sources, ours in by_sources.items():
        yield _line(sources, ours)
    if len(by_sources) > 1:
        yield _line("all", [row for ours in by_sources.values() for row in ours])


def _line(name: str, rows: Iterable[Row]) -> str:
    sums: Counter[str] = Counter()
    victims: Counter[str] = Counter()
    for row in rows:
        sums.update({count: row[count] for count in COUNTED})
        if row["shard"] == KILLS:
            victims[row["program"]] += row["kills"]
    cells = [*(victims[victim] for victim in SHARES), *(sums[count] for count in COUNTED)]
    return f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |"


def sources(rows: Iterable[Row]) -> Iterator[str]:
    """What was looked at, by the source of the captures."""
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        if row["kind"] == "counts" and row["shard"] == CAPTURES:
            sums.setdefault(row["program"], Counter()).update({name: row[name] for name in COUNTED})
    for name, found in sorted(sums.items()):
        yield f"{name}: {found['captures']:,} captures, {found['events']:,} events"


def slopes(rows: Iterable[Row]) -> Iterator[str]:
    """The last run of long use."""
    last = {row["program"]: row for row in rows}
    if not last:
        yield "No run has been kept yet."
        return
    one = next(iter(last.values()))
    said = f"{one['captures']:,} captures and {one['questions']:,} questions in one daemon"
    yield f"Sources {one['sources']}: {said}; its first {one['settled']:,} captures are warm-up."
    yield ""
    yield "| what | by 1,000 captures | 95 % interval | least and most |"
    yield "|---|---|---|---|"
    for name, (title, unit) in UNITS.items():
        row = last[name]
        slope, low, high = (f"{row[each]:+.3f}" for each in ("slope", "low", "high"))
        yield f"| {title} | {slope} {unit} | {low} to {high} | {row['least']:,} to {row['most']:,} {unit} |"


def faults(rows: Iterable[Row]) -> Iterator[str]:
    """Each fault, with where to look."""
    return (f"FAULT: {row['harm']}\n       {row['log']}" for row in rows if row.get("harm"))


def keep(ledger: Ledger) -> None:
    """Move what was counted to the sums, and into the document. Raises ValueError where there is a fault to look at."""
    rows = list(ledger.rows(place.digest()))
    measured = [row for row in rows if row["kind"] == "slopes"]
    ledger.keep(place.digest())
    if measured:
        SLOPES.write_text(json.dumps(measured[-len(UNITS) :], indent=1) + "\n")
    write(DOCUMENT, kept(KEPT), json.loads(SLOPES.read_text()) if SLOPES.exists() else [])


def kept(path: Path) -> list[Row]:
    """Sums that stay with the sources."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(document: Path, rows: Sequence[Row], measured: Sequence[Row]) -> None:
    """Put the tables between their marks."""
    text = document.read_text()
    counted = [*table(rows), "", *(f"- {line}" for line in sources(rows))]
    for name, lines in (("counts", counted), ("slopes", list(slopes(measured)))):
        begin, end = (mark.format(name) for mark in _MARKS)
        before, _, rest = text.partition(begin)
        text = "\n".join([before + begin, *lines, end]) + rest.partition(end)[2]
    document.write_text(text)
