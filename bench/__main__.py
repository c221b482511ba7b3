"""`python -m bench [CASE[:PART] …]`: the table of docs/performance.md. A case that takes long has parts."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Iterator

from bench.measure import SCRATCH, Row

CASES = (
    *("importing", "peers", "engine", "idle", "capturing", "recording", "tracing", "arming", "stopping", "ingest"),
    *("wire", "collecting", "observer", "xspace", "replying", "sampling", "beside", "memory", "starting", "polling"),
    *("victim", "rollups", "answers", "ui", "watched", "where", "slurm", "hosts", "around", "stacks"),
)


def main() -> None:
    """Run the cases and print a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--events", type=int, default=1_000_000, help="size of the generated trace")
    arguments = parser.parse_args()
    wrong = next(filter(None, map(_wrong, arguments.cases)), "")
    if wrong:
        parser.error(wrong)
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found = [show(row) for row in _rows(arguments.cases, arguments.events)]
    SCRATCH.mkdir(exist_ok=True)
    (SCRATCH / "results.json").write_text(json.dumps([row.as_dict() for row in found], indent=1))
    missed = [row.what for row in found if row.met is False]
    print(
        f"\nload after: {os.getloadavg()[0]:.1f}. " + (f"missed: {'; '.join(missed)}" if missed else "every bar is met")
    )


def _wrong(name: str) -> str:
    """Why there is no such case, or part of one."""
    case, _, part = name.partition(":")
    if case not in CASES:
        return f"no case {case}; there are {', '.join(CASES)}"
    parts = getattr(importlib.import_module(f"bench.cases.{case}"), "PARTS", {}) if part else {}
    if part and part not in parts:
        return f"no part {part} of {case}; there are {', '.join(parts) or 'none'}"
    return ""


def _rows(cases: list[str], events: int) -> Iterator[Row]:
    for case, _, part in (name.partition(":") for name in cases):
        rows = importlib.import_module(f"bench.cases.{case}").rows
        yield from rows(events, part) if part else rows(events)


def show(row: Row) -> Row:
    """Print one row."""
    verdict = {True: "met", False: "MISSED", None: ""}[row.met]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
    print(f"\n{row.case}: {row.what}\n  ours {row.ours}", end="")
    for name, value in (("peer", row.peer), ("floor", row.floor), ("ratio", ratio), ("bar", row.bar)):
        if value:
            print(f"   {name} {value}", end="")
    print(f"   {verdict}" + (f"\n  {row.note}" if row.note else ""), flush=True)
    return row


if __name__ == "__main__":
    main()
