"""What must hold in a process that is recorded: faults.py, and how processes end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.torch_observer import faults
from tests.integration.torch_observer.running import SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("torch_builds")]

# Ends while ops are recorded, with a range open and tensors alive that came through our allocator.
EXIT = """
import sys, threading
import torch
from profclient import _recorder
from profclient.torch import observer
if sys.argv[1] == "with":
    loaded = observer.load()
    _recorder.arm(sources=1 | 4 | 16)
    loaded.start(3)
    loaded.start_memory()
threading.Thread(target=threading.Event().wait, daemon=True).start()
open_range = torch.profiler.record_function("open")
open_range.__enter__()
alive = [torch.ones(100, requires_grad=True) for _ in range(10)]
sum(alive).sum().backward()
print("end")
"""


@pytest.fixture(scope="module")
def held(torch_builds: Path) -> list[str]:
    program = Path(__file__).with_name("faults.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    names = done.stdout.splitlines()
    if done.returncode != 0:
        names.append(f"ended with {done.returncode}: {done.stderr[-3000:]}")
    return names


@pytest.mark.parametrize("case", [case.__name__ for case in faults.CASES])
def test_it_holds(case: str, held: list[str]) -> None:
    assert case in held, held[-1] if held else "it said nothing"


def test_an_interpreter_that_ends_while_recording(torch_builds: Path) -> None:
    for way in ("with", "without"):
        done = subprocess.run(
            [sys.executable, "-c", EXIT, way], capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert (done.returncode, done.stdout) == (0, "end\n"), (way, done.stderr[-2000:])
