"""A user who keeps the lock of the directory in which everybody's Kineto makes names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from profd.model.capture import Options, Reason, State
from profd.sources.kineto import recording, wire
from profd.sources.kineto import source as source_module
from profd.sources.kineto.source import TRACE_DIRECTORY, KinetoSource
from profd.targets.errands import names
from profd.targets.process import Process

from tests.integration.kineto.conftest import session
from tests.support.kineto_client import KinetoClient, write_trace
from tests.support.locked_inode import locked_names, why_not
from tests.support.python_jobs import seen
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
MALLORY = 61301
OPTIONS = Options(duration_ns=100_000_000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is so for ever."""
    monkeypatch.setattr(recording, "LEAD_NS", 50_000_000)
    monkeypatch.setattr(recording, "_SLACK_NS", 50_000_000)
    monkeypatch.setattr(names, "NAMES_SECONDS", 1.0)
    monkeypatch.setattr(source_module, "_HOUSEKEEPING_SECONDS", 0.1)
    monkeypatch.setattr(source_module, "_REACH_SECONDS", 0.1)


@pytest.fixture
def process(socket_dir: Path, tmp_path: Path) -> Process:
    """This one, which uses Kineto."""
    (tmp_path / "traces").mkdir()
    own = seen(os.getpid())
    environ = {
        "KINETO_USE_DAEMON": "1",
        "KINETO_IPC_SOCKET_DIR": str(socket_dir),
        TRACE_DIRECTORY: str(tmp_path / "traces"),
    }
    return replace(own, environ=environ, framework="torch")


@pytest.fixture
async def registered(source: KinetoSource, socket_dir: Path, process: Process) -> AsyncIterator[Process]:
    """The same, and it has."""
    with KinetoClient(socket_dir) as client:
        polling = asyncio.create_task(client.run(write_trace))
        yield process
        polling.cancel()


async def test_who_has_registered_is_recorded_all_the_same(
    source: KinetoSource, registered: Process, socket_dir: Path, tmp_path: Path
) -> None:
    with locked_names(socket_dir, tmp_path / "mount", MALLORY) as (keeper, _):
        await eventually(lambda: source.out_of_reach)
        begun, _ = session(tmp_path)
        result = await source.record(registered, OPTIONS, begun)
        assert result.state is State.DRAINING, result.message
        # who it is that keeps others from it is told
        assert f"pid {keeper} of uid {MALLORY} has a file open there" in source.status()[1]
        assert not source.socket_lost()
    await eventually(lambda: not source.out_of_reach)
    assert source.status()[1] == "listening: directory"


async def test_who_cannot_register_is_told_why(
    source: KinetoSource, process: Process, socket_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_EXPECTED_SECONDS", 0.0)
    monkeypatch.setattr(source_module, "_REGISTER_SECONDS", 0.0)
    with locked_names(socket_dir, tmp_path / "mount", MALLORY):
        await eventually(lambda: source.out_of_reach)
        offer = source.offer(process)
        assert (offer.can, f"has kept the lock of {socket_dir}" in offer.reason) == (False, True)
        begun, _ = session(tmp_path)
        result = await source.record(process, OPTIONS, begun)
        assert (result.state, result.reason) == (State.FAILED, Reason.TARGET_SILENT)
        assert f"has kept the lock of {socket_dir}" in result.message
        # It can be closed meanwhile, and leaves its name to its successor
        await source.close()
    assert (socket_dir / wire.DAEMON_NAME).exists()
