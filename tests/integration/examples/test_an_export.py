"""docs/adding-an-export.md, done: its patch is applied to a copy of the tree, and a trace is written there."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.support.patched import PROFCTL, Patched, patched, shown

pytestmark = pytest.mark.slow

BASE = 1_700_000_000_000_000_000
OUTSIDE_MAX = 2  # files of code that are not the format's own


@pytest.fixture(scope="module")
def patch(tmp_path_factory: pytest.TempPathFactory) -> Patched:
    return patched("an-export", tmp_path_factory.mktemp("tree"))


def test_it_touches_few_files(patch: Patched) -> None:
    code = {file for file in patch.files if file.startswith(("daemon/", "client/", "native/", "protos/"))}
    assert "daemon/profd/export/csv.py" in code
    assert len(code) - 1 <= OUTSIDE_MAX
    assert {file for file in patch.files if not file.startswith("tests/")} - code == {"CHANGELOG.md", "docs/export.md"}


def test_a_trace_is_written_in_it(patch: Patched, tmp_path: Path) -> None:
    events = [{"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 10 * n, "dur": 2} for n, name in enumerate("ab")]
    file, out = tmp_path / "t.json", tmp_path / "t.csv"
    file.write_text(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}))
    profctl = (*PROFCTL, "--store", str(tmp_path / "state"))
    patch.run(*profctl, "import", str(file))
    patch.run(*profctl, "export", "-f", "csv", "-o", str(out))
    rows = [*csv.DictReader(out.read_text().splitlines())]
    assert [(row["row"], row["name"], row["duration_ns"]) for row in rows] == [("0", "a", "2000"), ("1", "b", "2000")]
    patch.run(*profctl, "export", "-f", "csv", "--window", "5us..", "-o", str(out))
    assert [row["name"] for row in csv.DictReader(out.read_text().splitlines())] == ["b"]
    assert "--redact does not work with the format csv" in patch.run(
        *profctl, "export", "-f", "csv", "--redact", "paths", "-o", str(out), code=2
    )
    assert "csv" in patch.run(*profctl, "export", "--help")


def test_its_page_shows_lines_of_it(patch: Patched) -> None:
    assert shown(patch, "adding-an-export.md") == []
