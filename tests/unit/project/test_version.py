"""The version is that of pyproject.toml, wherever a literal saves a slow start the reading of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import profd
from profclient import agent

ROOT = Path(__file__).resolve().parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_python_says_the_version_of_the_project() -> None:
    assert (profd.__version__, agent.VERSION) == (VERSION, VERSION)


def test_so_does_the_collector_which_runs_without_python() -> None:
    (said,) = re.findall(r'kVersion = "([^"]+)"', (ROOT / "native" / "gpu" / "inject.cpp").read_text())
    assert said == VERSION


def test_the_changelog_begins_with_it() -> None:
    first = next(line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## "))
    assert first.split()[1].removesuffix(":") == VERSION
