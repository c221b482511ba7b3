"""The targets of the Makefile that name tests: each file is there, or pytest runs none of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TARGETS = ("hostile", "faults", "test-ui", "test-engines")


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_target_runs_is_there(target: str) -> None:
    made = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    words = " ".join(re.findall(r"tests/\S+", made))
    assert words, made
    named = subprocess.run(
        ["bash", "-c", f"echo {words.replace(';', ' ')}"], capture_output=True, text=True, check=True
    )
    assert [path for path in named.stdout.split() if not (ROOT / path).exists()] == []
