"""What each kind of child holds open: by its uid others can take it (pidfd_getfd(2), /proc/PID/fd)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.attached.agents.porters import Porters
from profd.kernel.identity import SAME
from profd.limits import WORKER_MEMORY_BYTES
from profd.observers import builder
from profd.observers.torch_of import Wanted
from profd.sources.pyspy import tool
from profd.sources.pyspy.confinement import confine
from profd.sources.pyspy.spout import Spout
from profd.workers.child import Child, WorkerSettings

from tests.support import arena_writer as writer
from tests.support.ingest import EPOCH, INCARNATION, arena_chunks, ingest_rig
from tests.support.python_jobs import SPIN, needs_ptrace, process_of, running
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
WAITS = "import sys, time; print('ready', flush=True); time.sleep(600)"
NULL = "/dev/null"


@pytest.fixture(autouse=True)
def careless(tmp_path: Path) -> Iterator[None]:
    """A file of the daemon's that is open for writing, and that every child would inherit."""
    fd = os.open(tmp_path / "audit", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(fd, True)
    yield
    os.close(fd)


def held(pid: int) -> dict[int, str]:
    """Descriptor -> what it is."""
    found = {}
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[int(file.name)] = os.readlink(file)
    return found


def pipes_of(process: asyncio.subprocess.Process) -> tuple[str, str]:
    transport = tool._transport(process)
    ends = (transport.get_pipe_transport(number) for number in (1, 2))
    out, err = (os.readlink(f"/proc/self/fd/{end.get_extra_info('pipe').fileno()}") for end in ends if end)
    return out, err


@needs_ptrace
@pytest.mark.parametrize("watched", [False, True])
async def test_a_sampler_and_its_warden(tmp_path: Path, watched: bool) -> None:
    if watched and os.geteuid() != 0:
        pytest.skip("a warden has rights that its sampler has not")
    async with contextlib.AsyncExitStack() as opened:
        job = opened.enter_context(running(SPIN))
        spout = await opened.enter_async_context(Spout(tmp_path / "file", 1 << 20))
        confinement = await asyncio.to_thread(confine, process_of(job), False, spout.writing)
        confinement = dataclasses.replace(confinement, warden=watched, uid=-1, gid=-1)
        sampler = await tool.spawn(Path(os.path.realpath(sys.executable)), ["-I", "-S", "-c", WAITS], confinement)
        try:
            assert sampler.stdout is not None
            assert await sampler.stdout.readline() == b"ready\n"
            out, err = pipes_of(sampler)
            output = os.readlink(f"/proc/self/fd/{spout.writing}")
            assert held(sampler.pid) == {0: NULL, 1: out, 2: err, spout.writing: output}
            warden = tool._wardens.get(sampler)
            assert (warden is not None) == watched
            if warden is not None:
                # Its questions, and where its target's paths begin.
                own = {NULL: 3, "anon_inode:seccomp notify": 1, "/": 1}
                assert Counter(held(warden.pid).values()) == own
        finally:
            await tool.reap(sampler)


HELD = """
import os, sys
kept = [os.open(f"/proc/{sys.argv[1]}/fd/{number}", os.O_WRONLY) for number in (1, 2)]
print("ready", flush=True)
sys.stdin.read()
"""


@needs_ptrace
async def test_who_holds_what_a_sampler_prints_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do its pipes stay with the daemon."""
    with running(SPIN) as job:
        confinement = await asyncio.to_thread(confine, process_of(job), False)
        program = Path(os.path.realpath(sys.executable))
        sampler = await tool.spawn(program, ["-I", "-S", "-c", WAITS], dataclasses.replace(confinement, uid=-1, gid=-1))
        assert sampler.stdout is not None
        await sampler.stdout.readline()
        ours = {*pipes_of(sampler)}
        with running(HELD, str(sampler.pid)) as holder:
            sampler.kill()
            monkeypatch.setattr(tool, "REAP_SECONDS", 3600.0)
            async with asyncio.timeout(60.0):
                assert await tool.ended(sampler, 60.0)
                await tool.reap(sampler)
            assert holder.poll() is None
            await eventually(lambda: not ours & set(held(os.getpid()).values()))


async def test_a_streamer() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            fd = writer.arena_fd(list(arena_chunks(streams=1, each=5)), recording=0, recorded=40)
            intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
            drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
            os.close(fd)
            await eventually(lambda: intake.chunks == 5)
            found = held(rig.streamers.pids[0])
            drain.close()
            intake.close()
    assert (found[0], found[1], found[2]) == (NULL, NULL, "/memfd:profd-told (deleted)")
    # The link, and what gRPC and the event loop have made of their own.
    own = ("socket:", "pipe:", "anon_inode:[event", "/memfd:arena")
    assert {name for number, name in found.items() if number > 2 and not name.startswith(own)} == set()


async def test_a_porter() -> None:
    """Its control, what it waits with, and two sockets for a connection; only root can look."""
    porters = Porters(change_identity=os.geteuid() == 0)
    agent, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        relay = porters.relay(os.getuid(), connection)
        agent.send(b"hello")
        relay.socket.setblocking(True)
        assert relay.socket.recv(16) == b"\0hello"  # it has both
        if os.geteuid() == 0:
            found = {number: name.partition(":[")[0] for number, name in held(porters.pids[0]).items()}
            assert found == {0: "socket", 1: NULL, 2: NULL, 3: "anon_inode", 4: "socket", 5: "socket"}
        relay.close()
    finally:
        porters.close()
        agent.close()


async def test_a_dropper() -> None:
    """Its control, and nothing of what it has closed; only root can look."""
    porters = Porters(change_identity=os.geteuid() == 0)
    connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        porters.droppers.drop(connection)
        [pid] = porters.droppers.pids
        other.setblocking(True)
        assert await asyncio.to_thread(other.recv, 1) == b""
        if os.geteuid() == 0:
            expected = {0: "socket", 1: NULL, 2: NULL}
            await eventually(lambda: {n: name.partition(":[")[0] for n, name in held(pid).items()} == expected)
    finally:
        porters.close()
        other.close()


async def test_a_worker() -> None:
    worker = await Child.start(WorkerSettings(SAME, WORKER_MEMORY_BYTES, {}))
    pid = worker.pid
    own = [f"/proc/{pid}/cgroup", f"/proc/{pid}/statm", "socket"]
    try:
        found = held(pid)
        assert (found[0], found[1], found[2][:5]) == (NULL, NULL, "pipe:")
        await eventually(lambda: beyond_the_usual(pid) == own)  # it opens libraries while it waits for work
    finally:
        await worker.kill()


def beyond_the_usual(pid: int) -> list[str]:
    """What it holds besides its input and its outputs."""
    return sorted(name.partition(":[")[0] for number, name in held(pid).items() if number > 2)


LISTS = """#!/bin/sh
for number in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -e /proc/$$/fd/$number ] && echo "$number $(readlink /proc/$$/fd/$number)"
done
"""


async def test_a_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program"
    program.write_text(LISTS)
    program.chmod(0o755)
    monkeypatch.setattr("profd.observers.builder.sys.executable", str(program))
    said: list[bytes] = []
    monkeypatch.setattr(builder, "_understood", lambda answer, code: said.append(answer))
    wanted = Wanted("2.13.0", "cf30", True, "", "/torch", str(tmp_path), os.geteuid(), os.getegid())
    await builder.build(wanted, change_identity=False)
    found: dict[str, str] = dict(line.split(" ", 1) for line in said[0].decode().splitlines())
    found = {number: name for number, name in found.items() if name != str(program)}  # the shell's own
    told = "/memfd:profd-told (deleted)"
    assert found == {"0": told, "1": told, "2": NULL}
