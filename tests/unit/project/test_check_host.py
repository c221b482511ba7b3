"""`make env` looks at the host before it downloads anything, and names all that is missing at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def check(path: str, python: str = sys.executable, megabytes: int = 1) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "check_host"), python, ".", str(megabytes)]
    return subprocess.run(command, cwd=ROOT, env={"PATH": path}, capture_output=True, text=True, check=False)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with what every host has, and nothing to build with."""
    for name in ("awk", "bash", "df", "env"):
        found = shutil.which(name)
        assert found, name
        (tmp_path / name).symlink_to(found)
    return tmp_path


def test_all_that_is_missing_is_named_at_once_with_its_packages(bare: Path) -> None:
    done = check(str(bare))
    assert done.returncode == 1
    assert done.stderr.startswith("This host lacks:\n")
    assert done.stderr.endswith("On Debian and Ubuntu: apt-get install git make g++\n")


def test_an_old_compiler_is_no_compiler(bare: Path) -> None:
    for name, text in (
        ("c++", '#!/bin/bash\n[ "$1" = -dumpversion ] && echo 7 || exit 1\n'),
        ("git", ""),
        ("make", ""),
    ):
        (bare / name).write_text(text)
        (bare / name).chmod(0o755)
    done = check(str(bare))
    assert (done.returncode, "c++ is 7" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("script", "lacks", "package"),
    [
        ("*version_info*) exit 1", "Python 3.11 or newer", "python3"),
        ("*ensurepip*) exit 1", "Python's module venv", "python3-venv"),
        ("*Python.h*) exit 1", "Python's headers", "python3-dev"),
    ],
)
def test_a_python_that_is_not_whole(tmp_path: Path, script: str, lacks: str, package: str) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\ncase "$*" in {script};; esac\n')
    python.chmod(0o755)
    done = check(os.environ["PATH"], str(python))
    assert done.returncode == 1
    assert f"  {lacks}" in done.stderr
    assert f"apt-get install {package}\n" in done.stderr


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    done = check(os.environ["PATH"], megabytes=10**9)
    assert (done.returncode, "1000000000 MB of disk in ." in done.stderr) == (1, True)
    assert check(os.environ["PATH"]).returncode == 0


def test_the_readme_names_the_same_packages() -> None:
    readme = (ROOT / "README.md").read_text()
    for package in ("python3", "python3-venv", "python3-dev", "git", "make", "g++"):
        assert f" {package}" in readme.partition("apt-get install")[2].partition("\n")[0]
