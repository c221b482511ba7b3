"""What agents pass is closed by processes that may wait for it; the daemon, and everybody else, goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from profd.attached.agents import agent as agent_module
from profd.attached.agents import porter as porter_module
from profd.attached.agents import porter_process as process_module
from profd.attached.agents import porters as porters_module
from profd.attached.agents.agent import ArmOrder
from profd.attached.agents.porter import Porter, Relay
from profd.attached.agents.protocol import PacketKind
from profd.kernel import nobody
from profd.targets.process import ProcessId

from tests.support import agent_server, stuck_exec
from tests.support.agent_server import ME
from tests.support.descriptors import nothing_left_open
from tests.support.fake_agent import LONG, FakeAgent, MiB, arm_agent, memfd
from tests.support.lingering import lingering
from tests.support.waiting import comes, eventually

ORDER = ArmOrder(epoch=0x2A, arena_bytes=MiB, options=("ranges",))
ROOT = os.geteuid() == 0


class Served(agent_server.Served):
    """A registry behind a socket, whose porters are given up soon."""

    def __init__(self, path: Path, only_uid: int | None = None) -> None:
        super().__init__(path, only_uid, change_identity=ROOT)

    @property
    def porters(self) -> list[int]:
        return self.registry.porters.pids

    async def greeted(self, **changes: object) -> FakeAgent:
        fake, _ = await self.attached(**changes)
        return fake

    async def welcomed(self) -> FakeAgent:
        """One that comes again until it is; what a porter has that waits for ever hears nothing."""
        return await comes(self._tried)

    async def _tried(self) -> FakeAgent | None:
        fake = FakeAgent(self.path)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError, TimeoutError):
            fake.hello()
            async with asyncio.timeout(1.0):
                if (await fake.receive()).kind == PacketKind.WELCOME:
                    return fake
        fake.close()
        return None


@pytest.fixture(autouse=True)
def _given_up_soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(process_module, "PORTER_ANSWERS_SECONDS", 1.0)
    monkeypatch.setattr(process_module, "_END_SECONDS", 0.1)
    with nothing_left_open():
        yield


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        found = Served(Path(name) / "agent.sock")
        try:
            yield found
        finally:
            found.server.close()


async def test_who_passes_a_socket_that_lingers_holds_up_nobody(served: Served) -> None:
    with lingering() as sock:
        fake = await served.greeted()
        [porter] = served.porters
        os.kill(porter, signal.SIGSTOP)  # so that it has the last one, and not we
        fake.send(PacketKind.CHANGED, 0, sock.fileno(), rank=1)
        sock.close()
        os.kill(porter, signal.SIGCONT)
        await eventually(lambda: served.registry.counts["hostile"] == 1)
        again = await served.welcomed()
        assert served.porters == [porter]  # whose wait a signal has ended
        fake.close()
        again.close()


async def test_one_that_is_refused_holds_up_nobody(served: Served) -> None:
    served.registry._only_uid = os.getuid() + 1
    with lingering() as sock:
        fake = FakeAgent(served.path)
        fake.hello(sock.fileno())
        sock.close()
        await eventually(lambda: served.registry.counts["refused"] == 1)
        served.registry._only_uid = None
        (await served.welcomed()).close()
        fake.close()


async def test_a_flood_of_them(served: Served) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(20):
            sock = held.enter_context(lingering())
            fake = FakeAgent(served.path)
            held.callback(fake.close)
            with contextlib.suppress(BrokenPipeError):
                fake.hello(sock.fileno())
            sock.close()
        (await served.welcomed()).close()


SENDS_HELD = """
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.support.fake_agent import FakeAgent
fake = FakeAgent(Path({path!r}))
fake.hello(os.open("held", os.O_RDONLY, dir_fd=folder))
"""


IN_CONTAINER = ["unshare", "--pid", "--fork"]
if shutil.which("unshare") is None or subprocess.run([*IN_CONTAINER, "true"], capture_output=True).returncode:
    IN_CONTAINER = []

GREETS = """
import asyncio, sys
from pathlib import Path
from profd.attached.agents.protocol import PacketKind
from tests.support.fake_agent import FakeAgent
async def main():
    fake = FakeAgent(Path(sys.argv[1]))
    fake.hello()
    print(PacketKind((await fake.receive()).kind).name)
asyncio.run(main())
"""


def greeting_in_container(path: Path) -> str:
    """What the agent of a process hears that is in a pid namespace of its own."""
    command = [*IN_CONTAINER, sys.executable, "-c", GREETS, str(path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[5], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(bool(stuck_exec.why_not()), reason=stuck_exec.why_not())
async def test_a_file_that_is_never_closed(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by SIGKILL: FUSE's server has read that it is to be, and does not answer."""
    monkeypatch.setattr(porters_module, "PORTERS_STUCK_MAX", 2)
    root = str(Path(__file__).parents[4])
    before = SENDS_HELD.format(root=root, path=str(served.path))
    holders = []
    try:
        for count in range(2):
            folder = tmp_path / str(count)
            holders.append(await asyncio.to_thread(stuck_exec.StuckProcess, folder, 0, before))
            await eventually(lambda count=count: served.registry.counts["hostile"] == count + 1)
            if count == 0:
                (await served.welcomed()).close()  # by another one
        await eventually(lambda: len(served.registry.porters._dying) == 2)
        fake = FakeAgent(served.path)
        assert "descriptors that your processes have passed" in (await fake.expect(PacketKind.REFUSED)).fields["why"]
        fake.close()
        if IN_CONTAINER:  # one that shares the uid has a porter of its own
            assert await asyncio.to_thread(greeting_in_container, served.path) == "WELCOME"
        await asyncio.to_thread(holders.pop().close)
        (await served.welcomed()).close()
    finally:
        for holder in holders:
            await asyncio.to_thread(holder.close)
    await eventually(lambda: not served.registry.porters._dying)


async def test_an_idle_agent_whose_porter_is_killed_comes_again(served: Served) -> None:
    fake = await served.greeted()
    [pid] = served.porters
    os.kill(pid, signal.SIGKILL)
    assert await fake.cut_off()
    fake.close()
    again = await served.welcomed()
    assert served.porters != [pid]
    again.close()


async def test_one_that_records_goes_on_with_another_porter(served: Served) -> None:
    fake = await served.greeted()
    agent = served.registry.get(ME)
    assert agent is not None
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    fd = memfd()
    fake.send(PacketKind.ARMED, ORDER.epoch, fd, first=1)
    armed, arm = await arming
    os.close(armed.fd)
    agent.limit("stacks")
    await fake.expect(PacketKind.LIMIT)
    (porter,) = served.porters
    os.kill(porter, signal.SIGKILL)
    assert await fake.cut_off()
    fake.close()
    # Before the daemon knows that, it would give the next connection to the dead one; agents come again.
    await eventually(lambda: not agent._link.open and porter not in served.porters)
    agent.stop()  # it does not hear that
    again = FakeAgent(served.path)
    again.hello(fd, armed=f"{ORDER.epoch:x}")
    os.close(fd)
    for kind in (PacketKind.WELCOME, PacketKind.LIMIT, PacketKind.STOP):
        await again.expect(kind)
    assert served.registry.get(ME) is agent
    assert served.registry._share._reserve.total() == 1  # root, or who runs the daemon
    again.send(PacketKind.STOPPED, ORDER.epoch, reason="stop", last=5, events=6)
    await eventually(lambda: arm.stopped is not None)
    assert arm.gone is None
    agent.release()
    await again.expect(PacketKind.RELEASE)
    again.close()
    await eventually(lambda: served.registry.get(ME) is None)


async def test_one_that_records_and_stays_away(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "AGENT_RETURN_SECONDS", 0.01)
    fake = await served.greeted()
    agent = served.registry.get(ME)
    assert agent is not None
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    fd = memfd()
    fake.send(PacketKind.ARMED, ORDER.epoch, fd, first=1)
    os.close(fd)
    armed, arm = await arming
    os.close(armed.fd)
    os.kill(served.porters[0], signal.SIGKILL)
    await eventually(lambda: arm.gone is not None)
    assert arm.gone  # it is not known to have ended
    assert served.registry.get(ME) is None
    fake.close()


LAST_WORDS = """
import os, sys
sys.path.insert(0, os.getcwd())
from pathlib import Path
from tests.support.fake_agent import FakeAgent, PacketKind
fake = FakeAgent(Path(sys.argv[1]))
fake.hello()
fake.socket.setblocking(True)
fake.socket.recv(65536)
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
for rank in range(40):
    fake.send(PacketKind.CHANGED, rank=rank)
os._exit(0)
"""


async def test_last_words_come_before_the_end_although_a_child_keeps_the_socket(served: Served) -> None:
    heard: list[ProcessId] = []
    served.registry.on_changed = heard.append
    job = subprocess.Popen([sys.executable, "-c", LAST_WORDS, str(served.path)], stdin=subprocess.PIPE)
    await eventually(lambda: len(heard) > 0 and not served.registry.all())
    assert len(heard) == 1 + 40
    await asyncio.to_thread(job.communicate)


async def test_a_porter_may_next_to_nothing(served: Served) -> None:
    fake = await served.greeted()
    [pid] = served.porters
    said = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert (said["NoNewPrivs"], said["Seccomp"], said["Threads"]) == ("1", "2", "1")
    if ROOT:
        nobodys = "\t".join([str(nobody.PORTERS)] * 4)
        assert (said["Uid"], said["Gid"], said["Groups"].strip()) == (nobodys, nobodys, "")
        assert {said[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    fake.close()


async def test_one_that_nobody_needs_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter_module, "PORTER_IDLE_SECONDS", 0.01)
    fake = await served.greeted()
    [pid] = served.porters
    fake.close()
    await eventually(lambda: not served.porters)
    await eventually(lambda: not os.path.exists(f"/proc/{pid}"))


async def test_descriptors_that_the_daemon_does_not_read_stay_with_their_sender(served: Served) -> None:
    """All porters are one user to the kernel, which lets so many be on the way: one of each connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    relay = served.registry.porters.relay(7, ours)
    porter = served.registry.porters._porters[7, 0]
    fd = memfd()
    for _ in range(20):
        socket.send_fds(theirs, [b"with"], [fd])
    theirs.send(b"behind")
    os.close(fd)
    came = [await read_at_once(porter, relay.socket) for _ in range(20)]
    assert came == [1] * 19 + [2]
    relay.close()
    theirs.close()


@pytest.mark.skipif(not ROOT, reason="the kernel limits nobody who has CAP_SYS_RESOURCE")
async def test_nobody_uses_up_what_all_porters_may_have_on_the_way(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(porter_module, "_DESCRIPTORS", 40)
    ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    relays = [served.registry.porters.relay(uid, ours) for uid, (ours, _) in zip((7, 8), ends, strict=True)]
    porter = served.registry.porters._porters[7, 0]
    fd = memfd()
    for _ in range(60):
        socket.send_fds(ends[0][1], [b"x"], [fd])
    porter.poke()
    await eventually(lambda: porter._asked is None)  # it has done what it can
    socket.send_fds(ends[1][1], [b"x"], [fd])
    os.close(fd)
    relays[1].socket.setblocking(True)
    said, fds, _, _ = await asyncio.to_thread(socket.recv_fds, relays[1].socket, 100, 1)
    assert (said, len(fds)) == (b"\0x", 1)
    os.close(fds[0])
    for relay, (_, theirs) in zip(relays, ends, strict=True):
        relay.close()
        theirs.close()


async def read_at_once(porter: Porter, sock: socket.socket) -> int:
    """How many packets its porter has sent up when it has done what it can."""
    porter.poke()
    await eventually(lambda: porter._asked is None)
    os.kill(porter.pid, signal.SIGSTOP)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            _, fds, _, _ = socket.recv_fds(sock, 100, 1)
            for fd in fds:
                os.close(fd)
            count += 1
    os.kill(porter.pid, signal.SIGCONT)
    return count


async def test_users_beyond_the_most_share_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porters_module, "PORTERS_MAX", 1)
    pairs = []
    for uid in (1, 2, 3):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pairs.append((served.registry.porters.relay(uid, ours), theirs))
    assert len(served.porters) == 2
    for relay, theirs in pairs:
        theirs.send(b"hello")
        relay.socket.setblocking(True)
        assert relay.socket.recv(100) == b"\0hello"
        relay.close()
        theirs.close()


async def test_containers_of_a_user_have_so_many_and_share_one_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes containers all the time takes no porter from another user, or from a container that has one."""
    monkeypatch.setattr(porters_module, "PORTERS_PER_UID_MAX", 3)
    porters = served.registry.porters
    opened: list[Relay | socket.socket] = []
    for uid, container in ((7, 1), (7, 2), (7, 3), (7, 4), (7, 5), (7, 1), (8, 1)):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened += [porters.relay(uid, ours, container), theirs]
    assert set(porters._porters) == {(7, 1), (7, 2), (7, 3), (7, porters_module._OTHERS), (8, 1)}
    # As many as are kept for users without one are no second container's.
    monkeypatch.setattr(porters_module, "PORTERS_MAX", 6)
    monkeypatch.setattr(porters_module, "PORTERS_KEPT", 1)
    for uid in (8, 9):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened += [porters.relay(uid, ours, 2), theirs]
    assert {key for key in porters._porters if key[0] != 7} == {
        (8, 1),
        (8, porters_module._OTHERS),
        porters_module._SHARED,
    }
    for each in opened:
        each.close()


async def test_who_was_told_something_while_it_answered_is_asked_again(served: Served) -> None:
    """The answer may be from before it began to wait."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    relay = served.registry.porters.relay(7, ours)  # which asks
    [pid] = served.porters
    control = served.registry.porters._porters[7, 0]._control
    assert select.select([control], [], [], LONG)[0]  # it has answered, and the loop has not heard that
    os.kill(pid, signal.SIGSTOP)
    relay.poke()
    await eventually(lambda: served.porters == [])  # given up, though there was an answer
    relay.close()
    theirs.close()


@contextlib.contextmanager
def streaming(served: Served, uid: int = 7) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A caller's end, and ours."""
    theirs, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours = served.registry.porters.stream(uid, connection)
    assert connection.fileno() < 0
    for sock in (theirs, ours):
        sock.settimeout(LONG)
    with theirs, ours:
        yield theirs, ours


def all_of(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


async def test_bytes_go_both_ways_and_each_way_ends_by_itself(served: Served) -> None:
    data = os.urandom(3 * MiB + 7)
    with streaming(served) as (theirs, ours):
        for sender, reader in ((theirs, ours), (ours, theirs)):
            reading = asyncio.create_task(asyncio.to_thread(all_of, reader))
            await asyncio.to_thread(sender.sendall, data)  # more than there is room for: it waits for the reader
            sender.shutdown(socket.SHUT_WR)
            assert await reading == data


async def test_who_does_not_read_is_waited_for_and_loses_nothing(served: Served) -> None:
    with streaming(served) as (theirs, ours), streaming(served) as (other, its):
        ours.setblocking(False)
        sent = 0
        while select.select([], [ours], [], 0.2)[1]:
            sent += ours.send(bytes(MiB))
        assert sent < 4 * MiB
        its.sendall(b"others go on")
        assert await asyncio.to_thread(other.recv, 100) == b"others go on"
        ours.close()
        assert len(await asyncio.to_thread(all_of, theirs)) == sent


async def test_an_end_that_is_closed_is_closed_at_the_other(served: Served) -> None:
    with streaming(served) as (theirs, ours):
        theirs.close()
        assert await asyncio.to_thread(ours.recv, 1) == b""
        await eventually(lambda: bool(_events(ours) & select.POLLHUP))
    with streaming(served) as (theirs, ours):
        ours.close()
        assert await asyncio.to_thread(theirs.recv, 1) == b""
        await eventually(lambda: bool(_events(theirs) & select.POLLHUP))


async def test_who_writes_to_somebody_who_reads_no_more_hears_of_it(served: Served) -> None:
    with streaming(served) as (theirs, ours):
        theirs.shutdown(socket.SHUT_RD)
        ours.send(b"x")
        await eventually(lambda: _is_broken(ours))
        theirs.sendall(b"I write")
        assert await asyncio.to_thread(ours.recv, 100) == b"I write"


def _is_broken(sock: socket.socket) -> bool:
    try:
        sock.send(b"")
    except BrokenPipeError:
        return True
    return False


def _events(sock: socket.socket) -> int:
    poll = select.poll()
    poll.register(sock, 0)
    return next((events for _, events in poll.poll(0)), 0)


async def test_what_is_passed_with_bytes_is_dropped_by_the_porter(served: Served) -> None:
    with lingering() as sock, streaming(served) as (theirs, ours):
        [porter] = served.porters
        os.kill(porter, signal.SIGSTOP)
        socket.send_fds(theirs, [b"first"], [sock.fileno()])
        theirs.send(b", second")
        sock.close()
        os.kill(porter, signal.SIGCONT)
        said = b""
        while len(said) < len(b"first, second"):
            data, fds, *_ = await asyncio.to_thread(socket.recv_fds, ours, 100, 1)
            assert fds == []
            said += data
        assert said == b"first, second"
        assert served.porters == [porter]


async def test_one_that_has_streams_is_needed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(porter_module, "PORTER_IDLE_SECONDS", 0.01)
    with streaming(served) as (theirs, ours):
        [pid] = served.porters
        porter = served.registry.porters._porters[7, 0]
        for _ in range(3):  # it is asked, and says so
            before = porter._idle
            await eventually(lambda before=before: porter._idle is not before)
        theirs.send(b"hello")
        assert await asyncio.to_thread(ours.recv, 16) == b"hello"
    await eventually(lambda: not served.porters)
    await eventually(lambda: not os.path.exists(f"/proc/{pid}"))
