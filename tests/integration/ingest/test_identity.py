"""Whom a streamer runs as, and what happens when it cannot run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from profd import nobody
from profd.ingest.streamers import Streamers
from profd.workers.identity import unreadable

from tests.support import arena_writer as writer
from tests.support import readable
from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, arena_chunks, ingest_rig
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
NOBODY = 65534
GROUP = 54321


@pytest.fixture
async def rig() -> AsyncIterator[IngestRig]:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            yield rig


@contextmanager
def arena() -> Iterator[int]:
    fd = writer.arena_fd(list(arena_chunks(streams=1, each=5)), recording=0, recorded=40)
    yield fd
    os.close(fd)


def effective(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


async def test_streamer_has_no_privileges_less_weight_and_nothing_of_ours(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the daemon")
    with arena() as fd, (rig.folder / "open").open("wb"):
        intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), os.getgid(), INCARNATION, EPOCH, fd)
        await eventually(lambda: intake.chunks == 5)
        (pid,) = rig.streamers.pids
        status, process = effective(pid), psutil.Process(pid)
        assert (int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"]) == (0, 0, "1")
        assert process.nice() >= 5
        assert "SECRET" not in process.environ()
        assert not [file for file in process.open_files() if str(rig.folder) in file.path]
        assert Path(f"/proc/{pid}/cgroup").read_text() == Path("/proc/self/cgroup").read_text()
        async with asyncio.timeout(LONG):
            await drain.finish(target_died=False)
        drain.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="changing identity takes root")
@pytest.mark.skipif(bool(unreadable(NOBODY, NOBODY)), reason=f"uid {NOBODY} cannot read this Python")
async def test_streamer_of_another_user_has_its_identity(rig: IngestRig) -> None:
    rig.folder.chmod(0o755)
    for path in (rig.socket, rig.folder / "control.sock"):
        os.chown(path, -1, GROUP)
        path.chmod(0o660)
    streamers = Streamers(rig.socket, rig.ingest.find, change_identity=True)
    with arena() as fd:
        intake = await rig.ingest.expect(INCARNATION, EPOCH, NOBODY, rig.folder)
        drain = streamers.drain(NOBODY, NOBODY, INCARNATION, EPOCH, fd)
        await eventually(lambda: intake.chunks == 5)
        status = effective(streamers.pids[0])
        assert status["Uid"].split() == status["Gid"].split() == [str(NOBODY)] * 4
        assert status["Groups"] == str(GROUP)  # of the socket, since it is not everybody's
        async with asyncio.timeout(LONG):
            await drain.finish(target_died=False)
        assert not drain.problem
        drain.close()
        await streamers.close()


OF_ROOT = """
import asyncio, json, os, tempfile
from pathlib import Path
from profd.ingest.streamers import Streamers
from tests.integration.ingest.test_identity import arena, effective
from tests.support.ingest import EPOCH, INCARNATION, ingest_rig
from tests.support.waiting import eventually

def held(pid):
    return sorted(os.readlink(file).partition(":[")[0] for file in Path(f"/proc/{pid}/fd").iterdir())

async def main(folder):
    async with ingest_rig(folder) as rig:
        for path in (folder, rig.socket, folder / "control.sock"):
            path.chmod(0o777)
        streamers = Streamers(rig.socket, rig.ingest.find, change_identity=True)
        assert not streamers.why_not(0, 0)
        with arena() as fd:
            intake = await rig.ingest.expect(INCARNATION, EPOCH, 0, folder)
            drain = streamers.drain(0, 0, INCARNATION, EPOCH, fd)
            await eventually(lambda: intake.chunks == 5 or drain.ended.is_set())
            if not drain.problem:
                pid = streamers.pids[0]
                status, descriptors = effective(pid), held(pid)
                await drain.finish(target_died=False)
                print(json.dumps([status["Uid"], status["Gid"], status["Groups"], status["CapEff"], descriptors]))
            print(json.dumps([drain.problem, intake.events]))
            drain.close()
            await streamers.close()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
"""


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
def test_the_streamer_of_root_s_processes_is_nobody_s_and_sends_all_the_same() -> None:
    """Uid 0 without capabilities would own /etc/shadow, and be an admin to the daemon."""
    command = readable.command(sys.executable, "-c", OF_ROOT)
    said = subprocess.check_output(command, text=True).splitlines()
    assert json.loads(said[-1]) == ["", 40]
    uids, gids, groups, capabilities, descriptors = json.loads(said[0])
    assert {*uids.split(), *gids.split()} == {str(nobody.STREAMER)}
    assert (groups, int(capabilities, 16)) == ("", 0)
    # Its input and output, its words, the arena, the link; gRPC's and the loop's own.
    known = ("/dev/null", "/memfd:profd-told (deleted)", "/memfd:arena (deleted)", "socket", "anon_inode", "pipe")
    assert {name for name in descriptors if not name.startswith(known)} == set()
    assert (descriptors.count("/dev/null"), descriptors.count("/memfd:profd-told (deleted)")) == (2, 1)


async def test_python_that_cannot_be_run_ends_the_drain_with_its_reason(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr("profd.ingest.streamers.RESTART_SECONDS", 0.0)
    with arena() as fd:
        intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), os.getgid(), INCARNATION, EPOCH, fd)
        async with asyncio.timeout(LONG):
            await drain.ended.wait()
        assert "/nowhere/python" in drain.problem
        # THEN what was recorded is known to be missing.
        assert [(loss.reason, loss.count) for loss in intake.losses] == [("missing", 40)]
        drain.close()
        intake.close()


async def test_users_who_cannot_run_our_python_are_known_before(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    streamers = Streamers(rig.socket, rig.ingest.find, change_identity=True)
    monkeypatch.setattr("profd.ingest.streamers.unreadable", lambda uid, gid: "/root" if uid == NOBODY else "")
    assert "uid 65534 cannot read /root" in streamers.why_not(NOBODY, NOBODY)
    assert streamers.why_not(NOBODY - 1, NOBODY) == ""
    assert streamers.why_not(os.geteuid(), os.getegid()) == ""
    assert rig.streamers.why_not(NOBODY, NOBODY) == ""  # it changes no identity
    await streamers.close()


async def test_drop_lets_go_of_the_arena_and_the_streamer_stays_for_the_next(rig: IngestRig) -> None:
    with arena() as fd:
        intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), os.getgid(), INCARNATION, EPOCH, fd)
        await eventually(lambda: intake.chunks == 5)
        pids = rig.streamers.pids
        drain.close()
        intake.close()
        (rig.folder / "again").mkdir()
        intake = await rig.ingest.expect(INCARNATION, EPOCH + 1, os.getuid(), rig.folder / "again")
        other = writer.arena_fd(list(arena_chunks(1, 3)), epoch=EPOCH + 1, recording=0)
        drain = rig.streamers.drain(os.getuid(), os.getgid(), INCARNATION, EPOCH + 1, other)
        os.close(other)
        await eventually(lambda: intake.chunks == 3)
        assert rig.streamers.pids == pids
        drain.close()


async def test_closing_all_ends_the_processes(rig: IngestRig) -> None:
    with arena() as fd:
        await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
        drain = rig.streamers.drain(os.getuid(), os.getgid(), INCARNATION, EPOCH, fd)
        await eventually(lambda: rig.streamers.pids)
        (pid,) = rig.streamers.pids
        await rig.streamers.close()
        assert not psutil.pid_exists(pid)
        assert drain.ended.is_set()
        assert "shutting down" in drain.problem
        drain.close()
