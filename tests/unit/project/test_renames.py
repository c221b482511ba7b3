"""No rename of the daemon, or of a process of it, goes from one directory into another: `profd.disk.files.rename`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.attached.ingest.streamer_calls import CALLS as STREAMERS
from profd.disk.files import rename
from profd.workers import calls

ROOT = Path(__file__).parents[3]
ONE_PLACE = ROOT / "daemon" / "profd" / "disk" / "files.py"
NAMES = {"rename", "renames", "move"}  # of os, pathlib and shutil
IN_C = re.compile(r"\brename(at2?)?\s*\(|filesystem::rename|\bNR_rename")


def renames(source: str) -> list[int]:
    """Lines that rename a file by a function of the standard library."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call | ast.ImportFrom) and _is_one(node)
    ]


def _is_one(node: ast.Call | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("os", "shutil") and any(alias.name in {*NAMES, "replace"} for alias in node.names)
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr != "replace":
        return node.func.attr in NAMES
    of_os = isinstance(node.func.value, ast.Name) and node.func.value.id == "os"
    return of_os or (len(node.args) == 1 and not node.keywords)  # a path's; that of a string takes two


def sources() -> Iterator[Path]:
    yield from (ROOT / "daemon").rglob("*.py")


def test_there_is_one_place_for_them() -> None:
    found = {str(path.relative_to(ROOT)): renames(path.read_text()) for path in sources() if path != ONE_PLACE}
    assert not {path: lines for path, lines in found.items() if lines}
    assert len(renames(ONE_PLACE.read_text())) == 1


def test_native_code_has_none() -> None:
    files = [path for path in (ROOT / "native").rglob("*") if path.suffix in (".c", ".cpp", ".h")]
    assert files
    assert not [path for path in files if IN_C.search(path.read_text())]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "os.rename(a, b)",
            "os.replace(a, b)",
            "a.rename(b)",
            "a.replace(b)",
            "shutil.move(a, b)",
            "os.renames(a, b)",
        ),
        *("from os import rename", "from shutil import move"),
    ],
)
def test_it_sees_them(line: str) -> None:
    assert renames(line) == [1]


@pytest.mark.parametrize(
    "line", ["'a'.replace('a', 'b')", "replace(a, x=1)", "structs.replace(a, x=1)", "rename(a, b)"]
)
def test_it_sees_no_others(line: str) -> None:
    assert not renames(line)


def test_it_goes_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="would leave its directory"):
        rename(tmp_path / "file", tmp_path / "folder" / "file")
    rename(tmp_path / "file", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "x"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_workers_and_streamers_have_no_such_call(machine: str) -> None:
    assert not {"rename", "renameat", "renameat2"} & {*calls.allowed(machine), *STREAMERS.more.split()}
