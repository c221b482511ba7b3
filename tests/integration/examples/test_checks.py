"""Patches of `docs/examples` pass what `make check` asks of changes, and the tests that they bring."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.patched import EXAMPLES, Patched, patched

pytestmark = pytest.mark.slow

TABLES = ("tests/unit/profd/questions/test_table.py", "tests/unit/project/test_layers.py")


@pytest.fixture(scope="module", params=sorted(file.stem for file in EXAMPLES.glob("*.patch")))
def patch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Patched:
    return patched(request.param, tmp_path_factory.mktemp("tree"))


def python_files(patch: Patched) -> list[str]:
    return [file for file in patch.files if file.endswith(".py")]


def test_the_tree_is_the_one_that_runs(patch: Patched) -> None:
    script = "import profd.questions.table as table, profclient; print(table.__file__, profclient.__file__)"
    assert all(path.startswith(str(patch.tree)) for path in patch.run(sys.executable, "-c", script).split())


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy knows of files that are the same in all copies."""
    return tmp_path_factory.mktemp("mypy")


def test_it_is_formatted_and_checked(patch: Patched, known: Path) -> None:
    patch.run(sys.executable, "-m", "ruff", "format", "--check", *python_files(patch))
    patch.run(sys.executable, "-m", "ruff", "check", *python_files(patch))
    patch.run(sys.executable, "-m", "mypy", "--cache-dir", str(known), *python_files(patch))


def test_its_own_tests_pass_and_those_that_hold_tables_to_code(patch: Patched, tmp_path: Path) -> None:
    own = [file for file in python_files(patch) if file.startswith("tests/")]
    assert own
    place = f"--basetemp={tmp_path / 'inner'}"  # of another run's folders it would clear away the oldest
    patch.run(sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", place, *own, *TABLES)
