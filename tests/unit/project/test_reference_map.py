"""The map of the reference: no row is empty, none promises, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
MAP = ROOT / "docs" / "reference-map.md"
PLACES = [ROOT, ROOT / "daemon" / "profd", *(ROOT / "daemon" / "profd").iterdir(), *(ROOT / "native").iterdir()]
PLACES += [ROOT / "daemon" / "profd" / "derive" / "timeline"]
FILE = re.compile(r"`([\w./]+\.(?:py|cpp|h|md))`")
TEST = re.compile(r"`(test_\w+)`")


def rows() -> list[list[str]]:
    lines = [line for line in MAP.read_text().splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_row_says_where() -> None:
    assert len(rows()) > 70
    for row in rows():
        assert len(row) >= 2, row
        assert all(row[:2]), row
        assert "not yet" not in " ".join(row).lower(), row


def test_the_files_and_tests_it_names_are_there() -> None:
    for row in rows():
        text = " ".join(row[1:])
        for name in FILE.findall(text):
            found = [place / name for place in PLACES if (place / name).is_file()]
            assert found or list((ROOT / "tests").rglob(Path(name).name)), name
        for name in TEST.findall(text):
            assert any(f"def {name}(" in path.read_text() for path in (ROOT / "tests").rglob("test_*.py")), name
