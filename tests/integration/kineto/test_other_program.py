"""Processes that become a program of root's, which polls, after they were accepted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from profd.model.capture import Options, Reason, State
from profd.sources.kineto import wire
from profd.sources.kineto.leftovers import Leftover, Leftovers
from profd.sources.kineto.source import TRACE_DIRECTORY, KinetoSource
from profd.targets.process import Process

from tests.integration.kineto.conftest import session
from tests.support import other_program
from tests.support.other_program import NOBODY, Target, needs_setuid
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = needs_setuid

POLL = wire.poll(3, 0, (1,))
OPTIONS = Options(duration_ns=100_000_000)

CLIENT = """
import socket, time
client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
client.bind("{directory}/dynoconfigclient-of-root")
client.setblocking(False)
print("ready", flush=True)
while True:
    try:
        client.sendto({poll!r}, "{directory}/dynolog")
        time.sleep(0.05)
        if b"ACTIVITIES" in client.recv(65536):
            open("{directory}/told", "w")
    except (BlockingIOError, FileNotFoundError):  # nothing is there, or nobody
        pass
"""


@pytest.fixture
def target(socket_dir: Path) -> Iterator[Target]:
    with other_program.target(CLIENT.format(directory=socket_dir, poll=POLL)) as found:
        yield found


@pytest.fixture
def traces(socket_dir: Path) -> Path:
    """Which the target can reach."""
    socket_dir.chmod(0o1777)
    folder = socket_dir / "traces"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def process(target: Target, traces: Path) -> Process:
    environ = {"KINETO_USE_DAEMON": "1", TRACE_DIRECTORY: str(traces)}
    return replace(target.process(), environ=environ, framework="torch")


async def test_before_it_has_registered(
    source: KinetoSource, target: Target, process: Process, tmp_path: Path, socket_dir: Path
) -> None:
    begun, reports = session(tmp_path)
    task = asyncio.create_task(source.record(process, OPTIONS, begun))
    await eventually(lambda: reports)
    target.say("setuid")
    async with asyncio.timeout(PATIENCE_SECONDS):
        result = await task
    assert (result.state, result.reason) == (State.FAILED, Reason.TARGET_ENDED)
    assert "another program" in result.message
    assert source.statistics().get("configs", 0) == 0
    assert not (socket_dir / "told").exists()


async def test_before_it_is_told(
    source: KinetoSource, target: Target, process: Process, tmp_path: Path, socket_dir: Path
) -> None:
    # GIVEN a process that has registered
    socket_dir.chmod(0o1777)
    target.say("print(made.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)), flush=True)")
    target.say(f"print(made[0].bind('{socket_dir}/dynoconfigclient-own'), flush=True)")

    def polled() -> bool:
        target.say(f"print(made[0].sendto({POLL!r}, '{socket_dir}/dynolog'), flush=True)")
        return source._polls.get(process.id) is not None

    await eventually(polled)
    # WHEN it becomes another program while its config waits for it
    begun, reports = session(tmp_path)
    task = asyncio.create_task(source.record(process, OPTIONS, begun))
    await eventually(lambda: any("waiting for poll" in doing for _, doing in reports))
    target.say("setuid")
    async with asyncio.timeout(PATIENCE_SECONDS):
        result = await task
    # THEN that is not told where to write
    assert (result.state, result.reason) == (State.FAILED, Reason.TARGET_ENDED)
    assert "another program" in result.message
    assert source.statistics().get("configs", 0) == 0
    assert not (socket_dir / "told").exists()


async def test_what_was_left_over_is_removed_by_what_its_program_sees(
    target: Target, process: Process, traces: Path, tmp_path: Path
) -> None:
    leftovers = Leftovers(tmp_path)
    name = "profd-0123_1.json"
    (traces / name).touch()
    os.chown(traces / name, NOBODY, NOBODY)
    item = Leftover(process.id.pid, process.id.start_ticks, NOBODY, str(traces), name, 0.0)
    leftovers.add(item)
    target.say("setuid")
    assert await leftovers.sweep(lambda process, since: True, lambda name: False) == 0
    assert (traces / name).exists()
