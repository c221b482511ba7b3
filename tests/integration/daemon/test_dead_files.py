"""Processes whose files lie on a file system that does not answer, at a daemon of everybody: it serves all others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.daemon.test_stuck_exec import BOB, MALLORY, everybody_is_served, profctl
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.dead_files import dead_files, why_not
from tests.support.in_proc import children, said_of, state
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

MAPS = """
library = os.open("torch/lib/libtorch_cpu.so", os.O_RDONLY)
mapped = mmap.mmap(library, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
"""


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(user=False) as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where MALLORY may go: of what their processes map is read what they may read."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("silent", ["OPEN:version.py", "LOOKUP:version.py", "READ:version.py"])
def test_others_list_and_start(daemon: RunningDaemon, folder: Path, silent: str) -> None:
    with ExitStack() as opened:
        dead = [
            opened.enter_context(dead_files(folder / f"mount{number}", MALLORY, silent, does=MAPS))
            for number in range(8)
        ]
        everybody_is_served(daemon)
        # What is not known of them is their version
        code, said = profctl(daemon, 0, "ps", "--all")
        assert code == 0, said
        assert all(str(each.pid) in said for each in dead)
        # A list that has used up its patience on the others asks this one no more: the next one does
        until(lambda: profctl(daemon, 0, "ps", "--all") and stuck(daemon), "an errand that waits")
        # and the daemon ends as always, though its errands wait on
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log


def test_a_daemon_that_is_killed_leaves_nothing_once_it_answers(daemon: RunningDaemon, folder: Path) -> None:
    with dead_files(folder / "mount", MALLORY, "OPEN:version.py", does=MAPS):
        assert profctl(daemon, BOB, "ps", "--all")[0] == 0
        left = [*stuck(daemon), *servers(daemon)]
        daemon.kill()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in left), "its errands have ended")


def servers(daemon: RunningDaemon) -> list[int]:
    return [pid for pid in children(daemon.process.pid) if "profd.targets.errands.server" in said_of(pid, "cmdline")]


def stuck(daemon: RunningDaemon) -> list[int]:
    """Processes of errands that were killed, and wait on."""
    return [pid for server in servers(daemon) for pid in children(server) if state(pid) == "D"]
