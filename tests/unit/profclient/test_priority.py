"""Sessions that processes of ours lead weigh what one thread of a job does. The kernel's groups are real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from profclient.priority import session_nice, weigh_as_a_thread

GROUP = Path("/proc/self/autogroup")
needs_groups = pytest.mark.skipif(not GROUP.exists(), reason="this kernel has no groups of sessions (autogroup)")


def group_of(pid: int) -> str:
    """The group's name and nice value: "/autogroup-123 nice 0". "" of a process in init's session, which is in none."""
    return Path(f"/proc/{pid}/autogroup").read_text().strip()


@pytest.fixture
def leader() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


@pytest.mark.parametrize(("nice", "cores", "expected"), [(0, 1, 0), (0, 2, 3), (5, 2, 8), (5, 64, 19), (0, 64, 18)])
def test_a_session_on_one_core_weighs_what_a_thread_does_on_all(nice, cores, expected):
    assert session_nice(nice, cores) == expected


@needs_groups
@pytest.mark.skipif(os.geteuid() != 0, reason="others may change ten groups a second, of all users")
def test_a_session_of_ours_is_nicer_and_no_other(leader):
    mine, name = group_of(os.getpid()), group_of(leader.pid).split()[0]
    expected = f"{name} nice {session_nice(2, os.cpu_count() or 1)}"
    weigh_as_a_thread(leader.pid, 2)
    assert group_of(leader.pid) == expected
    weigh_as_a_thread(leader.pid)  # it is nicer than that already
    assert group_of(leader.pid) == expected
    assert group_of(os.getpid()) == mine


@needs_groups
def test_a_session_that_another_process_leads_stays_as_it_is(leader):
    """`os.nice` is real, so a process that ends with it."""
    before = group_of(os.getpid())
    code = "from profclient.priority import give_way, weigh_as_a_thread; give_way(1); weigh_as_a_thread(0, 9)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert group_of(os.getpid()) == before


@needs_groups
@pytest.mark.skipif(os.geteuid() != 0, reason="others may change ten groups a second, of all users")
def test_a_process_gives_way_with_its_session():
    code = "from profclient.priority import give_way; give_way(5); print(open('/proc/self/autogroup').read())"
    said = subprocess.run(
        [sys.executable, "-c", code], start_new_session=True, check=True, capture_output=True, text=True
    )
    assert int(said.stdout.split()[2]) == session_nice(5, os.cpu_count() or 1)


def test_a_process_that_has_ended_is_no_error(leader):
    leader.kill()
    leader.wait()
    weigh_as_a_thread(leader.pid)
