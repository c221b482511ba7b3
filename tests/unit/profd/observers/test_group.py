"""What is seen of the processes of a build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.limits import OBSERVER_BUILD_CPU_SECONDS, OBSERVER_STALLED_SECONDS
from profd.observers.group import Group

from tests.support.waiting import until

# The parent of the group ends; who is left is found all the same.
LEAVES_ONE = "import os, sys, time\nif os.fork() == 0:\n    print(os.getpid(), flush=True)\n    time.sleep(600)\n"


@pytest.fixture
def group() -> Iterator[tuple[int, int]]:
    """The number of one, and the process that is left of it."""
    with subprocess.Popen([sys.executable, "-c", LEAVES_ONE], stdout=subprocess.PIPE, start_new_session=True) as began:
        assert began.stdout is not None
        left = int(began.stdout.readline())
        yield began.pid, left
        os.killpg(began.pid, signal.SIGKILL)


def test_one_that_is_stopped(group: tuple[int, int]) -> None:
    number, left = group
    assert Group(number).why_to_end() == ""
    os.kill(left, signal.SIGSTOP)
    until(lambda: Group(number).why_to_end() == f"one of its processes was stopped (pid {left})", "it is seen")


def test_one_that_gets_no_cpu_time(group: tuple[int, int]) -> None:
    now = [0.0]
    seen = Group(group[0], clock=lambda: now[0])
    now[0] = OBSERVER_STALLED_SECONDS
    assert seen.why_to_end() == ""
    now[0] += 1
    assert "s of CPU time in 61 s" in seen.why_to_end()


def as_proc(folder: Path, pid: int, spent_seconds: float) -> None:
    """A process as the kernel shows it."""
    (folder / str(pid)).mkdir(exist_ok=True)
    (folder / str(pid) / "status").write_text("Name:\tcc1plus\nState:\tR (running)\n")
    (folder / str(pid) / "schedstat").write_text(f"{int(spent_seconds * 1e9)} 0 1\n")


def test_cpu_time_counts_of_all_and_of_who_has_ended(tmp_path: Path) -> None:
    now = [0.0]
    seen = Group(7, clock=lambda: now[0], proc=tmp_path, group_of={7: 7, 8: 6, 9: 7}.__getitem__)
    half = OBSERVER_BUILD_CPU_SECONDS / 2
    as_proc(tmp_path, 7, half)
    as_proc(tmp_path, 8, OBSERVER_BUILD_CPU_SECONDS + 1)  # of another group
    assert seen.why_to_end() == ""
    (tmp_path / "7" / "status").unlink()
    as_proc(tmp_path, 9, half)
    assert seen.why_to_end() == ""
    as_proc(tmp_path, 9, half + 1)
    assert seen.why_to_end() == f"it took more than {OBSERVER_BUILD_CPU_SECONDS:.0f} s of CPU time"
    # AND whoever gets on is not taken for one that does not
    seen = Group(5, clock=lambda: now[0], proc=tmp_path, group_of=lambda pid: {5: 5}.get(pid, 0))
    for second in range(1, 200):
        now[0] = float(second)
        as_proc(tmp_path, 5, second / 100)
        assert seen.why_to_end() == ""
