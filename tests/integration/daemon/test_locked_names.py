"""A user who keeps the lock of Kineto's directory, at a daemon of everybody: it serves all others, and it ends."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemon.test_stuck_exec import MALLORY, everybody_is_served, profctl
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.kineto_client import KinetoClient
from tests.support.locked_inode import locked_names, why_not
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# It looks at its directory more often, and waits less long for it.
OFTEN = (
    "-c",
    "from profd import main; from profd.sources.kineto import source; from profd.targets.errands import names; "
    "source._HOUSEKEEPING_SECONDS = source._REACH_SECONDS = 0.5; names.NAMES_SECONDS = 2.0; main.main()",
)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="profd-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def running(directory: Path) -> Iterator[RunningDaemon]:
    daemon = start_daemon(directory, user=False, program=OFTEN)
    try:
        yield daemon
    finally:
        daemon.kill()


def is_told(daemon: RunningDaemon) -> None:
    until(lambda: "somebody has kept the lock" in daemon.log, "it has seen that")


async def test_others_are_served_and_it_ends(directory: Path, tmp_path: Path) -> None:
    with running(directory) as daemon, KinetoClient(daemon.kineto_dir) as client:
        await client.ask()
        with locked_names(daemon.kineto_dir, tmp_path / "mount", MALLORY) as (keeper, _):
            is_told(daemon)
            await client.ask()
            await asyncio.to_thread(everybody_is_served, daemon)
            code, said = await asyncio.to_thread(profctl, daemon, 0, "doctor")
            assert f"pid {keeper} of uid {MALLORY} has a file open there" in " ".join(said.split()), (code, said)
            assert daemon.stop() == 0
            assert "Traceback" not in daemon.log


def test_it_can_be_killed(directory: Path, tmp_path: Path) -> None:
    with running(directory) as daemon, locked_names(daemon.kineto_dir, tmp_path / "mount", MALLORY):
        is_told(daemon)
        daemon.kill()


async def test_one_that_begins_meanwhile_serves_kineto_later(directory: Path, tmp_path: Path) -> None:
    with running(directory) as daemon:
        assert daemon.stop() == 0
    with contextlib.ExitStack() as stack:
        with locked_names(daemon.kineto_dir, tmp_path / "mount", MALLORY):
            daemon = stack.enter_context(running(directory))
            is_told(daemon)
            await asyncio.to_thread(everybody_is_served, daemon)
        until(lambda: "has been made anew" in daemon.log, "it has a socket")
        with KinetoClient(daemon.kineto_dir) as client:
            await client.ask()
        assert "are in reach again" in daemon.log
        assert daemon.stop() == 0
