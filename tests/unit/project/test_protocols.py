"""Every Protocol stands in docs/decisions/0024-protocols.md, with one of its reasons."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "decisions" / "0024-protocols.md"
ROOMS = (ROOT / "daemon" / "profd", ROOT / "client" / "profclient")
REASONS = {"several", "layer", "circle", "stand-in"}


def declared() -> set[str]:
    """Module and name of each, as the page writes them."""
    found = set()
    for room in ROOMS:
        for path in room.rglob("*.py"):
            module = ".".join(path.relative_to(room.parent).with_suffix("").parts).removeprefix("profd.")
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and "Protocol" in {ast.unparse(base) for base in node.bases}:
                    found.add(f"{module}.{node.name}")
    return found


def test_each_has_a_reason() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| ([\w-]+) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == declared()
    assert {reason for _, reason in rows} <= REASONS
