"""No code asks which source it has before it: a source declares, and a trait of its declaration is asked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("client/profclient", "daemon/profd")
SOURCES = {"cuda", "jax", "kineto", "pyspy", "sdk"}


def asks(code: str) -> Iterator[int]:
    """The lines that compare a source, or the name of one, with the name of a source."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(_is_source, sides)) and SOURCES & set(_texts(sides)):
                yield node.lineno


def _is_source(side: ast.expr) -> bool:
    if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Constant):
        return side.slice.value == "source"
    words = ast.unparse(side).split(".")
    return words[-1] == "source" or words[-2:] == ["source", "name"]


def _texts(sides: list[ast.expr]) -> Iterator[str]:
    for side in sides:
        for part in ast.walk(side):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def test_no_code_asks_for_a_source_by_its_name() -> None:
    files = {path.relative_to(ROOT): path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    found = {
        str(name): list(asks(code)) for name, code in files.items() if any(f'"{word}"' in code for word in SOURCES)
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code",
    [
        'options.source == "kineto"',
        '"sdk" != source',
        'meta.source in ("pyspy", "jax")',
        'row["source"] == "cuda"',
        'source.name == "sdk"',
    ],
)
def test_no_way_to_ask_is_overlooked(code: str) -> None:
    assert list(asks(f"x = 1\ny = {code}")) == [2]


def test_formats_and_traces_from_elsewhere_are_no_sources() -> None:
    assert list(asks('kind == "pyspy" or meta.source == "import"')) == []
