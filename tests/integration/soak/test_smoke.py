"""`make soak`, very small: that the rig works, and finds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kindness import place
from tests.support import readable

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("soak")]


def soak(folder: Path, *arguments: str) -> str:
    """It is the subreaper of what it starts, so it has a process of its own."""
    command = [sys.executable, "-m", "soak", "--seed", "15", *arguments]
    environ = {**os.environ, "SOAK_DIR": str(folder)}
    done = subprocess.run(command, cwd=place.ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if why := readable.why_not():
        pytest.skip(why)


def test_six_kills(tmp_path: Path) -> None:
    said = soak(tmp_path, "--kills", "6")
    assert "6 kills of 6" in said
    assert (tmp_path / "results.jsonl").read_text().count('"shard": "kills"') == 6


def test_a_dozen_captures_and_questions(tmp_path: Path) -> None:
    """A run so short may have no slope, and then says so; what there is is measured."""
    command = [sys.executable, "-m", "soak", "--seed", "15", "--captures", "12", "--questions", "24"]
    environ = {**os.environ, "SOAK_DIR": str(tmp_path)}
    done = subprocess.run(command, cwd=place.ROOT, env=environ, capture_output=True, text=True, check=False)
    assert "FAULT" not in done.stdout, done.stdout + done.stderr
    assert "12 captures" in done.stdout
    assert "24 questions" in done.stdout
    assert list(tmp_path.glob("steady-*.jsonl"))
