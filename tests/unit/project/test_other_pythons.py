"""`tools/test_other_pythons`: environments are made beside the suite, and their tests run behind it.

The Pythons are stand-ins, which note what they are asked: real ones compile for minutes.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ("3.12", "3.13")
PYTHON = """#!/bin/sh
case "$*" in
"-c "*) ;;
"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
*" pip "*) sh -c "$PIP"; code=$?; echo "made at $(nice)" >> "$NOTES"; exit $code ;;
*" pytest "*) echo tested >> "$NOTES"; sh -c "$PYTEST" ;;
esac
"""


@dataclass
class Rig:
    """`notes`: what was asked, a line each."""

    folder: Path

    @property
    def notes(self) -> list[str]:
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, *command: str, pip: str = "", pytest: str = "") -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.defpath}"
        environ = {"PATH": path, "NOTES": str(self.folder / "notes"), "PIP": pip, "PYTEST": pytest}
        return subprocess.run(
            [ROOT / "tools" / "test_other_pythons", *command],
            env={**environ, "HOME": str(self.folder), "TMPDIR": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    (tmp_path / "bin").mkdir()
    for version in VERSIONS:
        python = tmp_path / "bin" / f"python{version}"
        python.write_text(PYTHON)
        python.chmod(0o755)
    return Rig(tmp_path)


ENDS_LAST = 'until [ "$(grep -c made "$NOTES")" = 2 ]; do sleep 0.02; done; echo command >> "$NOTES"'


def test_environments_are_made_beside_the_command_and_tested_behind_it(rig: Rig) -> None:
    done = rig.run("sh", "-c", ENDS_LAST, pytest="echo 7 passed")
    assert done.returncode == 0, done.stderr
    assert rig.notes == ["made at 19", "made at 19", "command", "tested", "tested"]
    assert done.stdout == "CPython 3.12:\n7 passed\nCPython 3.13:\n7 passed\n"
    assert not list(rig.folder.glob("tmp*"))


def test_where_the_command_fails_there_are_no_tests_and_what_compiles_is_ended(rig: Rig) -> None:
    both = 'until [ "$(cat "$HOME"/compiler.* | wc -l)" = 2 ]; do sleep 0.02; done; exit 5'
    done = rig.run("sh", "-c", both, pip='echo $$ > "$HOME/compiler.$$"; exec sleep 1000')
    assert (done.returncode, rig.notes) == (5, [])
    compilers = [Path("/proc", file.suffix[1:]) for file in rig.folder.glob("compiler.*")]
    until(lambda: not any(compiler.exists() for compiler in compilers), "no compiler runs")


@pytest.mark.parametrize("broken", ["pip", "pytest"])
def test_what_fails_is_said(rig: Rig, broken: str) -> None:
    done = rig.run(**{broken: "echo no compiler; exit 3"})
    assert done.returncode == 3
    assert "no compiler" in done.stdout
    assert ("tested" in rig.notes) == (broken == "pytest")


def test_a_python_that_is_not_installed_is_named(rig: Rig) -> None:
    (rig.folder / "bin" / "python3.12").unlink()
    done = rig.run()
    assert done.returncode == 0
    assert done.stdout == "CPython 3.12 is not installed: the client was not tested on it\nCPython 3.13:\n"
