"""Counts that add up, and their tables in a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from kindness import place
from soak import report
from soak.counts import CAPTURES, FAULTS, KILLS, Counts, Slopes, ledger
from soak.usage import UNITS


def test_counts_of_runs_add_up_and_go_into_the_document(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    for run in ("a", "b"):
        one = ledger(tmp_path / run, kept)
        one.add(Counts(KILLS, "daemon", kills=1))
        one.add(Counts(KILLS, "worker", kills=1))
        one.add(Counts(CAPTURES, "sdk", captures=1, events=1000))
        one.keep(place.digest())
    rows = report.kept(kept)
    document = tmp_path / "reliability.md"
    marks = "".join(f"{mark.format(name)}\nold\n" for name in ("counts", "slopes") for mark in report._MARKS)
    document.write_text(f"begin\n{marks}end\n")
    measured = [
        {"sources": "d", **{slot: getattr(one, slot) for slot in Slopes.__slots__}}
        for one in (Slopes(name, 10, 20, 3, 0.5, -1, 2, 4, 5) for name in UNITS)
    ]
    report.write(document, rows, measured)
    report.write(document, rows, measured)
    text = document.read_text()
    assert f"| {place.digest()} | 2 | 2 | 0 | 0 | 0 | 0 | 0 | 4 | 2 | 2,000 | 0 | 0 | 0 |" in text
    assert "- sdk: 2 captures, 2,000 events" in text
    assert text.count("| its threads | +0.500  | -1.000 to +2.000 |") == 1


def test_a_fault_is_looked_at_before_anything_is_kept(tmp_path: Path) -> None:
    one = ledger(tmp_path, tmp_path / "kept.jsonl")
    one.add(Counts(FAULTS, "", harm="1 events lost", log="/tmp/soak-1"))
    with pytest.raises(ValueError, match="1 events lost"):
        one.keep(place.digest())
    assert list(report.faults(one.rows(place.digest()))) == ["FAULT: 1 events lost\n       /tmp/soak-1"]
