"""tests/support/README.md names every file of its folder, once."""

from __future__ import annotations

import re
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[2] / "support"


def test_the_index_names_every_file_once() -> None:
    rows = [line.split("|")[1] for line in (SUPPORT / "README.md").read_text().splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    there = {path.name for path in SUPPORT.iterdir()} - {"README.md", "__init__.py", "__pycache__"}
    assert sorted(named) == sorted(there)
