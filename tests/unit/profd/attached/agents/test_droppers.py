"""What a user passes in connections that nobody reads holds up nobody else, and is closed when it can be."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import struct
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from profd.attached.agents import dropper as dropper_module
from profd.attached.agents import droppers as droppers_module
from profd.attached.agents import porter_process as process_module
from profd.attached.agents import server as server_module
from profd.attached.agents.droppers import Droppers
from profd.kernel import nobody

from tests.support.agent_server import Served
from tests.support.descriptors import nothing_left_open
from tests.support.fake_agent import LONG, FakeAgent
from tests.support.in_proc import of_threads
from tests.support.lingering import lingering
from tests.support.people import being
from tests.support.unclosable import unclosable, why_not
from tests.support.waiting import eventually

ROOT = os.geteuid() == 0
MALLORY, BOB = 61311, 61312
SHARED = droppers_module._SHARED

needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(autouse=True)
def _given_up_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_module, "PORTER_ANSWERS_SECONDS", 1.0)
    monkeypatch.setattr(process_module, "_END_SECONDS", 0.1)
    monkeypatch.setattr(dropper_module, "DROPPER_LOOK_SECONDS", 0.02)
    with nothing_left_open():
        yield


class Rig:
    """Droppers alone, and pairs whose one end is to be dropped."""

    def __init__(self) -> None:
        self.droppers = Droppers((nobody.PORTERS, nobody.PORTERS) if ROOT else None)
        self.ended = process_module.end_all

    def drop(self, fill: Callable[[socket.socket], object], kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
        """Drop one end of a pair behind what `fill` has done with the other, which is returned."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
        fill(theirs)
        self.droppers.drop(ours)
        assert ours.fileno() < 0
        return theirs

    @property
    def came(self) -> int:
        """Sockets that were not surely empty."""
        return self.droppers._of[os.geteuid()].seen.came


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    found = Rig()
    yield found
    process_module.end_all(found.droppers.close())


async def test_it_ends_when_nothing_comes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropper_module, "PORTER_IDLE_SECONDS", 0.1)
    rig.drop(lambda theirs: None).close()
    [pid] = rig.droppers.pids
    await eventually(lambda: not rig.droppers.pids and not os.path.exists(f"/proc/{pid}"))
    rig.drop(lambda theirs: None).close()
    assert rig.droppers.pids not in ([], [pid])


def passes(fd: int, *before: bytes, flags: int = 0) -> Callable[[socket.socket], None]:
    """A descriptor behind some packets."""

    def fill(theirs: socket.socket) -> None:
        for packet in before:
            theirs.send(packet)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", fd))
        theirs.sendmsg([b"x"], [rights], flags)

    return fill


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
async def test_what_surely_holds_no_descriptor_is_closed_at_once(rig: Rig, kind: int) -> None:
    def fills(theirs: socket.socket) -> None:
        for packet in (b"", b"x", bytes(16_000), b"", b"y"):
            theirs.send(packet)

    def gone(theirs: socket.socket) -> None:
        fills(theirs)
        theirs.close()

    def has_unread(theirs: socket.socket) -> None:
        fills(theirs)
        theirs.shutdown(socket.SHUT_WR)

    for fill in (lambda theirs: None, fills, gone, has_unread):
        with rig.drop(fill, kind) as theirs:
            if theirs.fileno() >= 0:
                theirs.settimeout(LONG)
                assert await asyncio.to_thread(theirs.recv, 1) == b""
    before = rig.droppers._of[os.geteuid()].seen
    rig.droppers._of[os.geteuid()].poke()
    await eventually(lambda: rig.droppers._of[os.geteuid()]._asked is None)
    assert rig.came == before.came == 0


URGENT = [socket.MSG_OOB] if hasattr(socket, "MSG_OOB") else []


@pytest.mark.parametrize(
    ("kind", "before", "flags"),
    [
        (socket.SOCK_SEQPACKET, [], 0),
        (socket.SOCK_SEQPACKET, [b"", b"x", b"", bytes(16_000)], 0),
        (socket.SOCK_STREAM, [], 0),
        (socket.SOCK_STREAM, [b"x", bytes(100_000)], 0),
        (socket.SOCK_STREAM, [], socket.MSG_OOB),
        (socket.SOCK_STREAM, [b"x"], socket.MSG_OOB),
    ],
)
async def test_what_may_hold_one_is_closed_by_who_may_wait(
    rig: Rig, kind: int, before: list[bytes], flags: int
) -> None:
    reading, writing = os.pipe()
    try:
        with rig.drop(passes(writing, *before, flags=flags), kind) as theirs:
            os.close(writing)
            assert await asyncio.to_thread(os.read, reading, 1) == b""  # closed
            theirs.settimeout(LONG)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(theirs.recv, 1) == b""
            await eventually(lambda: rig.came == 1)
    finally:
        os.close(reading)


@pytest.mark.skipif(not ROOT, reason="only root sees which descriptors it has")
async def test_it_closes_what_it_is_to_behind_us(rig: Rig) -> None:
    """Were it first, our own close would be the last, and wait."""
    rig.drop(lambda theirs: None).close()
    dropper = rig.droppers._of[os.geteuid()]
    dropper._next.cancel()
    await eventually(lambda: dropper._asked is None and not held_by(dropper.pid))
    reading, writing = os.pipe()
    sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(theirs, [b"x"], [writing])
    os.close(writing)
    socket.send_fds(dropper._control, [b"d"], [sock.fileno()])
    await eventually(lambda: held_by(dropper.pid))  # it has a copy
    sock.close()
    assert not select.select([reading], [], [], 0)[0]
    dropper.poke()
    assert await asyncio.to_thread(os.read, reading, 1) == b""  # closed once it has heard of the next
    theirs.close()
    os.close(reading)


def held_by(pid: int) -> list[str]:
    """Descriptors of a dropper beside its own three."""
    return [name for name in os.listdir(f"/proc/{pid}/fd") if int(name) > 2]


async def test_sockets_that_linger(rig: Rig) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(3):
            sock = opened.enter_context(lingering())

            def fill(theirs: socket.socket, sock: socket.socket = sock) -> None:
                passes(sock.fileno())(theirs)
                sock.close()  # so that ours is not the last

            theirs = opened.enter_context(rig.drop(fill))
            theirs.settimeout(LONG)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(theirs.recv, 1) == b""
        dropper = rig.droppers._of[os.geteuid()]
        await eventually(lambda: dropper.seen.came == dropper.seen.closed == 3)
        assert len(rig.droppers.pids) == 1


@pytest.mark.skipif(not ROOT, reason="only root sees its rights")
async def test_it_may_next_to_nothing(rig: Rig) -> None:
    rig.drop(lambda theirs: None).close()
    [pid] = rig.droppers.pids
    await eventually(lambda: rig.droppers._of[0]._asked is None and len(os.listdir(f"/proc/{pid}/task")) == 2)
    rig.droppers._of[0].poke()
    await eventually(lambda: rig.droppers._of[0]._asked is None)
    for task in Path(f"/proc/{pid}/task").iterdir():
        said = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines())
        assert (said["NoNewPrivs"], said["Seccomp"]) == ("1", "2")
        nobodys = "\t".join([str(nobody.PORTERS)] * 4)
        assert (said["Uid"], said["Gid"], said["Groups"].strip()) == (nobodys, nobodys, "")
        assert {said[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}


# --- files that cannot be closed ---


@contextlib.asynccontextmanager
async def nobody_accepts_yet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Path, Callable[[], Served]]]:
    """Where the socket is, and how it begins to be served: who is not root is refused there at the second try."""
    monkeypatch.setattr(server_module, "_RATE", replace(server_module._RATE, per_second=1e-6, burst=1))
    made: list[Served] = []
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        path = Path(name) / "agent.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(128)

        def serve() -> Served:
            made.append(Served(path, change_identity=True, listener=listener))
            return made[0]

        yield path, serve
        made[0].server.close()  # safe to repeat


@needs_fuse
@pytest.mark.parametrize("count", [2, 5, 65])
async def test_files_that_cannot_be_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int) -> None:
    """The first of these is not refused: the porter of their user has it."""
    async with nobody_accepts_yet(monkeypatch) as (path, serve):
        attack = contextlib.ExitStack()
        with attack:
            await asyncio.to_thread(attack.enter_context, unclosable(path, tmp_path / "mount", MALLORY, count))
            served = serve()
            droppers = served.registry.porters.droppers
            await eventually(lambda: MALLORY in droppers._of and droppers.held == count - 1)
            [pid] = droppers.pids
            await eventually(lambda: waits(pid))
            # AND others are served, whether they are refused or not
            with being(BOB):
                fake = FakeAgent(path)
                refused = FakeAgent(path)
            fake.hello()
            await fake.receive()
            assert await refused.cut_off()
            refused.close()
            fake.close()
            # AND whose they are is told
            await eventually(lambda: droppers._stuck._told is not None)
            await asyncio.to_thread(attack.close)
        await eventually(lambda: droppers.held == 0)


def waits(pid: int) -> bool:
    """Whether a thread of it cannot be ended."""
    return any(said.rpartition(")")[2].split()[0] == "D" for said in of_threads(pid, "stat").values())


@needs_fuse
async def test_one_that_is_full_is_left_alone_and_another_one_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """16 descriptors are its own."""
    monkeypatch.setattr(dropper_module, "DROPPER_DESCRIPTORS_MAX", 16 + 10)
    async with nobody_accepts_yet(monkeypatch) as (path, serve):
        attack = contextlib.ExitStack()
        with attack:
            await asyncio.to_thread(attack.enter_context, unclosable(path, tmp_path / "mount", MALLORY, 36))
            served = serve()
            droppers = served.registry.porters.droppers
            await eventually(lambda: [*droppers._dying.values()] == [MALLORY])
            with being(MALLORY):
                fake = FakeAgent(path)
            assert await fake.cut_off()  # by another one
            fake.close()
            assert len(droppers.pids) == 2
            await asyncio.to_thread(attack.close)
        await eventually(lambda: not droppers._dying and droppers.held == 0)


# --- and what else may happen to one ---


async def test_users_beyond_the_most_share_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(droppers_module, "DROPPERS_MAX", 0)
    for _ in range(2):
        with rig.drop(lambda theirs: None) as theirs:
            theirs.settimeout(LONG)
            assert await asyncio.to_thread(theirs.recv, 1) == b""
    assert [*rig.droppers._of] == [SHARED]


async def test_no_more_are_accepted_while_nobody_closes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(droppers_module, "DROPPERS_FULL_MAX", 0)
    monkeypatch.setattr(droppers_module, "DROPS_WAITING_MAX", 2)
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for ours, _ in ends:
        assert rig.droppers.drop_again()
        rig.droppers.drop(ours)
    assert not rig.droppers.drop_again()
    monkeypatch.setattr(droppers_module, "DROPPERS_FULL_MAX", 1)
    await eventually(lambda: not rig.droppers.waiting)  # by itself
    for _, theirs in ends:
        theirs.settimeout(LONG)
        assert await asyncio.to_thread(theirs.recv, 1) == b""
        theirs.close()


async def test_one_that_was_killed(rig: Rig) -> None:
    rig.drop(lambda theirs: None).close()
    [pid] = rig.droppers.pids
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not os.path.exists(f"/proc/{pid}") or not rig.droppers.pids)
    with rig.drop(lambda theirs: None) as theirs:
        theirs.settimeout(LONG)
        assert await asyncio.to_thread(theirs.recv, 1) == b""
    assert pid not in rig.droppers.pids


@needs_fuse
async def test_a_daemon_that_ends_waits_for_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """More are to be closed at its end than one takes at once."""
    async with nobody_accepts_yet(monkeypatch) as (path, serve):
        with contextlib.ExitStack() as attack:
            await asyncio.to_thread(attack.enter_context, unclosable(path, tmp_path / "mount", MALLORY, 100))
            served = serve()
            droppers = served.registry.porters.droppers
            await eventually(lambda: droppers.held == 99)
            [dropper] = droppers._of.values()
            os.kill(dropper.pid, signal.SIGSTOP)
            for _ in range(300):
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                droppers._waiting.setdefault(MALLORY, deque()).append(ours)
                theirs.close()
            await asyncio.to_thread(os.kill, dropper.pid, signal.SIGCONT)
            served.server.close()
            assert not droppers.waiting
            await asyncio.to_thread(attack.close)


COMES_AND_GOES = """
import os, socket, sys
os.setgid(4321); os.setuid(4321)
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
"""


@pytest.mark.skipif(not ROOT, reason="only root can become somebody else")
async def test_one_that_does_not_answer_is_replaced_under_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nobody_accepts_yet(monkeypatch) as (path, serve):
        served = serve()
        droppers = served.registry.porters.droppers
        flooding = [sys.executable, "-c", COMES_AND_GOES, str(path)]
        assert await (await asyncio.create_subprocess_exec(*flooding, "2")).wait() == 0
        await eventually(lambda: 4321 in droppers._of)
        stopped = droppers._of[4321]
        os.kill(stopped.pid, signal.SIGSTOP)
        count = 1000
        assert await (await asyncio.create_subprocess_exec(*flooding, str(count))).wait() == 0
        await eventually(lambda: served.registry.counts["refused"] >= count)
        await eventually(lambda: droppers._of.get(4321, stopped) is not stopped and not droppers.waiting)
        with being(BOB):
            fake = FakeAgent(path)
        fake.hello()
        await fake.receive()
        fake.close()
