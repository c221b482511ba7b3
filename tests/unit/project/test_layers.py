"""The rooms of the daemon stand in the order of docs/architecture.md, and none imports one that stands above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DAEMON = ROOT / "daemon" / "profd"
NATIVE = {"_engine", "_host", "_scan"}
NAMED = re.compile(r"profd(?:\.\w+)+")


def layers() -> list[str]:
    """The order in which the document lists them, from the ground up."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = text.split("<!-- layers -->")[1].split("<!-- end of layers -->")[0]
    return list(dict.fromkeys(re.findall(r"`([\w.]+)`", block)))


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(DAEMON.rglob("*.py")):
        name = ".".join(path.relative_to(DAEMON).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, path


def imported(tree: ast.Module) -> Iterator[str]:
    """All that a module names of the package: in imports (under TYPE_CHECKING and in functions, too) and in strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "profd":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("profd."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not is_logger(node):
            yield from NAMED.findall(node.value.partition(":")[0]) if NAMED.match(node.value) else ()


def is_logger(node: ast.Constant) -> bool:
    return getattr(node, "logger", False)


def mark_what_is_no_import(tree: ast.Module) -> None:
    """Names of loggers, and docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
            for argument in node.args:
                argument.logger = True  # type: ignore[attr-defined]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.logger = True  # type: ignore[attr-defined]


def layer_of(module: str, known: list[str]) -> str | None:
    """The longest name in the list that a module lies below."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in known:
            return name
    return None


def test_every_room_has_its_place() -> None:
    known = layers()
    assert len(known) == len(set(known))
    placeless = {name for name, _ in modules() if layer_of(name, known) is None}
    assert placeless == set()
    rooms = {name for name, _ in modules()}
    assert [name for name in known if not any(f"{room}.".startswith(f"{name}.") for room in rooms)] == []


def test_none_imports_what_stands_above_it() -> None:
    known = layers()
    upwards = set()
    for name, path in modules():
        tree = ast.parse(path.read_text())
        mark_what_is_no_import(tree)
        own = layer_of(name, known) or ""
        for other in imported(tree):
            place = other.removeprefix("profd.")
            theirs = layer_of(place, known)
            if theirs is None or place.split(".")[0] in NATIVE or theirs.split(".")[0] == own.split(".")[0]:
                continue
            if known.index(theirs) > known.index(own):
                upwards.add(f"{name} -> {place}")
    assert sorted(upwards) == []


@pytest.mark.parametrize(
    "text",
    [
        "from profd.rpc.server import RpcServer",
        "import profd.rpc.server",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from profd.rpc import server",
        "def late():\n    from profd.rpc.server import RpcServer",
        'JOB = "profd.rpc.server:serve"',
    ],
)
def test_no_way_to_import_is_overlooked(text: str) -> None:
    tree = ast.parse(text)
    mark_what_is_no_import(tree)
    assert any(name.startswith("profd.rpc.server") for name in imported(tree))


def test_a_name_of_a_logger_is_no_import() -> None:
    tree = ast.parse('log = logging.getLogger("profd.rpc.server")')
    mark_what_is_no_import(tree)
    assert list(imported(tree)) == []
