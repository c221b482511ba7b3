"""Agents that come, arm, go, lie and flood, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from profd.attached.agents import link as link_module
from profd.attached.agents import registry as registry_module
from profd.attached.agents.agent import Agent, ArmOrder, NotArmed, NotRecalled
from profd.attached.agents.protocol import Kind, encode
from profd.attached.agents.registry import ATTACHED, AgentRegistry
from profd.attached.agents.server import AgentServer
from profd.capture.planner import Sighting
from profd.fairness.shares import Share
from profd.kernel.peer import Peer
from profd.limits import (
    AGENT_CONNECTIONS_BURST,
    AGENT_LINES_BURST,
    AGENT_PACKETS_PER_SECOND_MAX,
    RECALL_NUMBERS_BYTES_MAX,
)
from profd.rpc.translate import sighting_message
from profd.targets.process import ProcessId
from profd.targets.table import ProcessTable
from profd.trust.identify import start_ticks

from tests.support.fake_agent import LONG, SEALS, FakeAgent, MiB, arm_agent, memfd
from tests.support.people import being
from tests.support.waiting import eventually

ME = ProcessId(os.getpid(), start_ticks(os.getpid()))
ORDER = ArmOrder(epoch=7, arena_bytes=MiB, options=("ranges", "torch:auto"), window_ns=10, max_overhead=0.02)


class Served:
    """A registry behind a socket."""

    def __init__(self, path: Path, only_uid: int | None = None, share: Share = ATTACHED) -> None:
        self.path = path
        self.registry = AgentRegistry(only_uid, share=share)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(path))
        listener.listen(128)
        self.server = AgentServer(listener, self.registry)
        self.server.open()

    async def attached(self, **changes: object) -> tuple[FakeAgent, Agent]:
        fake = FakeAgent(self.path)
        fake.hello(**changes)
        await fake.expect(Kind.WELCOME)
        agent = self.registry.get(ME)
        assert agent is not None
        return fake, agent


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        found = Served(Path(name) / "agent.sock")
        try:
            yield found
        finally:
            found.server.close()


@pytest.fixture(autouse=True)
def _no_descriptor_leaks() -> object:
    ProcessTable().get(os.getpid())  # where torch is loaded, the first look starts the server of errands for good
    before = descriptors()
    yield
    assert descriptors() == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_who_it_is_is_the_kernels_word(served: Served) -> None:
    fake, agent = await served.attached(pid=1, start=5, rank=3, job="j1", framework="torch 2.13.0")
    assert agent.process == ME
    assert agent.uid == os.getuid()
    assert agent.hello.framework == "torch 2.13.0"
    process = ProcessTable(labelled=served.registry.labelled).get(os.getpid())
    assert process is not None
    assert (process.rank, process.job) == (3, "j1")
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)


@pytest.mark.parametrize(
    ("told", "shown"), [("", "torch (importing)"), ("torch 2.13.0", "torch")], ids=["begun", "over"]
)
async def test_a_framework_whose_import_is_not_over(told: str, shown: str, served: Served) -> None:
    """Its libraries are mapped from the begin of the import on; the agent tells the framework at the end."""
    fake, _ = await served.attached(framework=told)
    process = ProcessTable().get(os.getpid())
    assert process is not None
    named = served.registry.labelled(replace(process, framework="torch"))
    assert sighting_message(Sighting(named, [])).framework == shown
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)


def test_a_process_that_has_ended_is_not_taken_for_the_next_of_its_pid() -> None:
    """It could have the container of that one."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pidfd = os.pidfd_open(ended.pid)
    try:
        with pytest.raises(OSError, match="it has ended"):
            registry_module._identify(Peer(os.getpid(), os.getuid(), os.getgid()), pidfd)
    finally:
        os.close(pidfd)


async def test_it_arms_counts_stops_and_is_idle_again(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    packet = await fake.expect(Kind.ARM)
    assert packet.epoch == 7
    assert packet.fields == {
        "arena": str(MiB),
        "strings": str(MiB // 3),
        "options": "ranges,torch:auto",
        "window": "10",
        "iterations": "0",
        "max_overhead": "0.020000",
    }
    fd = memfd()
    fake.send(Kind.ARMED, 7, fd, first=123, not_honoured="flops: no; memory: neither")
    armed, arm = await arming
    assert (armed.first_ns, armed.not_honoured) == (123, ("flops: no", "memory: neither"))
    assert os.fstat(armed.fd).st_ino == os.fstat(fd).st_ino
    assert fcntl.fcntl(armed.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(armed.fd)
    os.close(fd)

    fake.send(Kind.STATUS, 6, events=99)  # of another epoch
    fake.send(Kind.STATUS, 7, events=5, steps=2)
    await eventually(lambda: arm.status.events == 5)
    agent.limit("c_calls")
    assert (await fake.expect(Kind.LIMIT)).fields == {"drop": "c_calls"}
    agent.stop()
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, 7, reason="stop", last=456, events=6)
    await eventually(lambda: arm.stopped is not None)
    assert arm.stopped is not None
    assert (arm.stopped.reason, arm.stopped.last_ns, arm.status.events) == ("stop", 456, 6)
    fake.send(Kind.STATUS, 7, step_ns_after=12)
    await eventually(lambda: arm.status.step_ns_after == 12)
    assert arm.status.events == 6  # what STOPPED said stays
    agent.release()
    assert (await fake.expect(Kind.RELEASE)).epoch == 7
    assert not agent.armed
    fake.send(Kind.STATUS, 7, step_ns_after=13)  # there is more to tell of the steps after it
    fake.send(Kind.STATUS, 7, after="over")
    await eventually(lambda: arm.status.after_over)
    assert (arm.status.step_ns_after, arm.status.events) == (13, 6)
    fake.close()


async def test_one_that_cannot_arm_says_why_and_is_idle(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(Kind.ARM)
    fake.send(Kind.FAILED, 7, why="no memory")
    with pytest.raises(NotArmed, match="no memory"):
        await arming
    assert not agent.armed
    fake.close()


async def test_one_that_says_nothing_is_told_to_stop_whenever_it_wakes(served: Served) -> None:
    fake, agent = await served.attached()
    with pytest.raises(NotArmed, match="within") as caught:
        await arm_agent(agent, ORDER, 0.01)
    assert caught.value.silent
    for kind in (Kind.ARM, Kind.STOP, Kind.RELEASE):
        assert (await fake.expect(kind)).epoch == 7
    fd = memfd()
    fake.send(Kind.ARMED, 7, fd, first=1)  # too late: its descriptor is closed
    os.close(fd)
    fake.send(Kind.CHANGED, framework="torch 1")
    await eventually(lambda: agent.hello.framework == "torch 1")
    fake.close()


async def test_a_capture_that_is_cancelled_while_it_arms_leaves_nothing_behind(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(Kind.ARM)
    arming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await arming
    await fake.expect(Kind.STOP)
    await fake.expect(Kind.RELEASE)
    assert not agent.armed
    fake.close()


async def test_one_that_goes_away_while_it_arms(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(Kind.ARM)
    fake.close()
    with pytest.raises(NotArmed) as caught:
        await arming
    assert caught.value.gone
    assert served.registry.get(ME) is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: memfd(MiB, 0), id="not sealed"),
        pytest.param(lambda: memfd(2 * MiB), id="another size"),
        pytest.param(lambda: os.open("/dev/zero", os.O_RDWR), id="a device"),
        pytest.param(lambda: os.open("/tmp", os.O_RDONLY), id="a directory"),
    ],
)
async def test_a_wrong_descriptor_ends_the_agent(served: Served, make: Callable[[], int]) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(Kind.ARM)
    fd = make()
    fake.send(Kind.ARMED, 7, fd, first=1)
    os.close(fd)
    with pytest.raises(NotArmed):
        await arming
    assert await fake.cut_off()
    assert served.registry.counts["hostile"] == 1
    fake.close()


async def test_who_is_cut_off_again_and_again_does_not_fill_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(AGENT_LINES_BURST + 5):
        fake = FakeAgent(served.path)
        fake.send_raw(b"garbage")
        assert await fake.cut_off()
        fake.close()
    assert served.registry.counts["hostile"] == AGENT_LINES_BURST + 5
    assert len([line for line in caplog.records if "cut off" in line.message]) == AGENT_LINES_BURST


async def test_armed_without_a_descriptor_ends_the_agent(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(Kind.ARM)
    fake.send(Kind.ARMED, 7, first=1)
    with pytest.raises(NotArmed):
        await arming
    assert await fake.cut_off()
    fake.close()


async def test_more_descriptors_than_one_are_hostile(served: Served) -> None:
    fake = FakeAgent(served.path)
    fds = [memfd() for _ in range(3)]
    fake.hello(*fds)
    for fd in fds:
        os.close(fd)
    assert await fake.cut_off()
    fake.close()


async def test_descriptors_that_nobody_asked_for_are_closed(served: Served) -> None:
    fake = FakeAgent(served.path)
    fd = memfd()
    fake.hello(fd)
    await fake.expect(Kind.WELCOME)
    fake.send(Kind.STATUS, 3, fd, events=1)
    fake.send(Kind.CHANGED, 0, fd, framework="x 1")
    os.close(fd)
    agent = served.registry.get(ME)
    await eventually(lambda: agent is not None and agent.hello.framework == "x 1")
    fake.close()


@pytest.mark.parametrize("raw", [b"hello", b"x" * 40_000, encode(Kind.STATUS, 1), encode(Kind.HELLO, versions="1-1")])
async def test_whoever_begins_with_no_hello_is_cut_off(served: Served, raw: bytes) -> None:
    fake = FakeAgent(served.path)
    fake.send_raw(raw)
    assert await fake.cut_off()
    await eventually(lambda: served.registry.counts["hostile"] == 1)
    fake.close()


async def test_whoever_says_nothing_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "AGENT_HELLO_SECONDS", 0.01)
    fake = FakeAgent(served.path)
    assert await fake.cut_off()
    fake.close()


async def test_a_flood_is_cut_off(served: Served) -> None:
    fake, _ = await served.attached()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(4 * AGENT_PACKETS_PER_SECOND_MAX):
            fake.send(Kind.CHANGED, rank=1)
            await asyncio.sleep(0)
    assert await fake.cut_off()
    assert served.registry.get(ME) is None
    fake.close()


async def test_what_was_said_while_nobody_read_is_no_flood(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    fake, agent = await served.attached()
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    now[0] += 4.0  # that the daemon stood still
    for rank in range(4 * AGENT_PACKETS_PER_SECOND_MAX):
        fake.send(Kind.CHANGED, rank=rank)
        await eventually(lambda rank=rank: agent.hello.rank == rank)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(2 * AGENT_PACKETS_PER_SECOND_MAX):
            fake.send(Kind.CHANGED, rank=1)
            await asyncio.sleep(0)
    assert await fake.cut_off()
    fake.close()


async def test_another_version_is_refused_with_what_to_do(served: Served) -> None:
    fake = FakeAgent(served.path)
    fake.hello(versions="2-3")
    assert "upgrade" in (await fake.expect(Kind.REFUSED)).fields["why"]
    assert await fake.cut_off()
    fake.close()


async def test_a_user_daemon_serves_its_own_uid_only() -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        served = Served(Path(name) / "agent.sock", only_uid=os.getuid() + 1)
        fake = FakeAgent(served.path)
        assert "--user" in (await fake.expect(Kind.REFUSED)).fields["why"]
        assert await fake.cut_off()
        fake.close()
        served.server.close()


CONNECT_AND_GO = """
import os, socket, sys
os.setgid(4321); os.setuid(4321)
for _ in range(int(sys.argv[2])):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_connects_and_goes_is_looked_at_seldom(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.path.parent.chmod(0o755)
    served.path.chmod(0o666)
    command = [sys.executable, "-c", CONNECT_AND_GO, str(served.path), str(3 * AGENT_CONNECTIONS_BURST)]
    flood = await asyncio.create_subprocess_exec(*command)
    assert await flood.wait() == 0
    fake, _ = await served.attached()
    fake.close()
    assert served.registry.counts["refused"] > 0
    assert caplog.text.count("connect too often") == 1


@pytest.fixture
async def crowded() -> AsyncIterator[Served]:
    """Few may attach: two of one user, four of all, two of root's."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        found = Served(Path(name) / "agent.sock", share=replace(ATTACHED, each=2, host=4, reserved=2))
        found.path.chmod(0o666)
        try:
            yield found
        finally:
            found.server.close()


async def kept(served: Served, uid: int | None = None) -> FakeAgent:
    """One that is let in, and says nothing."""
    before = len(served.registry._greetings)
    with being(uid):
        fake = FakeAgent(served.path)
    await eventually(lambda: len(served.registry._greetings) > before)
    return fake


async def why_refused(served: Served, uid: int | None = None) -> str:
    with being(uid):
        fake = FakeAgent(served.path)
    why: str = (await fake.expect(Kind.REFUSED)).fields["why"]
    fake.close()
    return why


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_where_all_places_are_taken_who_has_fewer_than_the_others_is_let_in(crowded: Served) -> None:
    alice, bob, carol = 5321, 5322, 5323
    fakes = [await kept(crowded, uid) for uid in (alice, alice, bob, bob)]
    assert "of one user" in await why_refused(crowded, alice)
    # WHEN others come, and root THEN they are let in, as far as their part goes
    fakes += [await kept(crowded, carol), await kept(crowded), await kept(crowded)]
    assert "of this host" in await why_refused(crowded, carol)
    assert "kept for root" in await why_refused(crowded)
    for fake in fakes:
        fake.close()


async def test_there_is_a_most_for_a_user_and_places_come_back(crowded: Served) -> None:
    first, second = await kept(crowded), await kept(crowded)
    assert "2 of 2 attached processes at once" in await why_refused(crowded)
    first.close()
    await eventually(lambda: len(crowded.registry._greetings) == 1)
    # The place of one that says who it is, and goes, is free again, too.
    for _ in range(2):
        fake, _ = await crowded.attached()
        fake.close()
        await eventually(lambda: crowded.registry.get(ME) is None)
    second.close()


async def test_an_idle_agent_that_comes_again_takes_its_own_place(served: Served) -> None:
    first, _ = await served.attached()
    second, agent = await served.attached(incarnation="bb")
    assert await first.cut_off()
    assert agent.hello.incarnation == 0xBB
    first.close()
    second.close()


async def test_a_second_agent_does_not_displace_one_that_records(served: Served) -> None:
    first, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await first.expect(Kind.ARM)
    second = FakeAgent(served.path)
    second.hello(incarnation="bb")
    assert "recorded" in (await second.expect(Kind.REFUSED)).fields["why"]
    second.close()
    first.close()
    with pytest.raises(NotArmed):
        await arming


async def test_one_that_comes_back_armed_is_handed_over_with_its_arena(served: Served) -> None:
    taken: list[tuple[Agent, int, int]] = []
    served.registry.on_orphan = lambda agent, epoch, fd: taken.append((agent, epoch, fd))
    fake = FakeAgent(served.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    await fake.expect(Kind.WELCOME)
    [(agent, epoch, received)] = taken
    assert (agent.process, epoch) == (ME, 42)
    assert os.fstat(received).st_ino == os.fstat(fd).st_ino
    os.close(received)
    os.close(fd)
    fake.close()


async def test_one_that_comes_back_armed_to_nobody_is_told_to_stop(served: Served) -> None:
    fake = FakeAgent(served.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    os.close(fd)
    await fake.expect(Kind.WELCOME)
    assert (await fake.expect(Kind.STOP)).epoch == 42
    assert (await fake.expect(Kind.RELEASE)).epoch == 42
    fake.close()


async def test_one_that_comes_back_armed_with_a_wrong_descriptor_is_cut_off(served: Served) -> None:
    fake = FakeAgent(served.path)
    fd = memfd(seals=0)
    fake.hello(fd, armed="2a")
    os.close(fd)
    assert await fake.cut_off()
    assert served.registry.get(ME) is None
    fake.close()


async def test_without_descriptors_connections_wait_and_nobody_is_busy(served: Served) -> None:
    waits = object.__new__(FakeAgent)
    waits.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as held:
        stat = held.enter_context(open(task_named("profd-reception") / "stat", "rb", buffering=0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(OSError):
            while True:
                held.callback(os.close, os.dup(0))
        waits.socket.connect(str(served.path))
        waits.socket.setblocking(False)
        waits.hello()
        await eventually(
            lambda: all(os.pread(stat.fileno(), 256, 0).rpartition(b")")[2][1:2] == b"S" for _ in range(20))
        )
    await waits.expect(Kind.WELCOME)
    waits.close()


def task_named(name: str) -> Path:
    """A thread of ours."""
    return next(task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == f"{name}\n")


KEEPS_THE_SOCKET_OPEN = """
import os, socket, sys, time
sys.path.insert(0, os.getcwd())
from pathlib import Path
from tests.support.fake_agent import FakeAgent
fake = FakeAgent(Path(sys.argv[1]))
fake.hello()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
time.sleep(3600)
"""


async def test_the_end_of_a_process_is_seen_although_a_child_keeps_its_socket(served: Served) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", KEEPS_THE_SOCKET_OPEN, str(served.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert job.stdout is not None
    await asyncio.to_thread(job.stdout.readline)
    await eventually(lambda: len(served.registry.all()) == 1)
    job.kill()
    await eventually(lambda: not served.registry.all())
    await asyncio.to_thread(job.communicate)


def tell(fake: FakeAgent, number: int, said: bytes, size: int = 0, seals: int = SEALS) -> None:
    """An answer as agents give it: `said`, in a file of at least `size` bytes."""
    fd = os.memfd_create("recall", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, max(size, len(said)))
    os.pwrite(fd, said, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    fake.send(Kind.RECALLED, number, fd)
    os.close(fd)


async def test_a_recall_is_answered_with_what_the_process_remembers(served: Served) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        asked = [asyncio.create_task(agent.recall(LONG, entries=entries)) for entries in (False, True)]
        questions = [await fake.expect(Kind.RECALL) for _ in asked]
        assert [question.fields["entries"] for question in questions] == ["0", "1"]
        for question in reversed(questions):  # in any order
            tell(fake, question.epoch, b"{%d}" % question.epoch)
        assert [await each for each in asked] == [b"{%d}" % question.epoch for question in questions]


@pytest.mark.parametrize("end", ["why", "death", "silence"])
async def test_a_recall_that_is_not_answered(served: Served, end: str) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        asked = asyncio.create_task(agent.recall(0.05 if end == "silence" else LONG, entries=True))
        question = await fake.expect(Kind.RECALL)
        if end == "why":
            fake.send(Kind.RECALLED, question.epoch, why="torch is not loaded")
        if end == "death":
            fake.close()
        expected = {"why": "torch is not loaded", "death": "gone away", "silence": "has not answered within"}
        with pytest.raises(NotRecalled, match=expected[end]):
            await asked


async def test_an_answer_that_nobody_waits_for_is_dropped(served: Served) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        tell(fake, 0, b"{}")
        asked = asyncio.create_task(agent.recall(LONG, entries=False))
        question = await fake.expect(Kind.RECALL)
        tell(fake, question.epoch, b"{1}")
        assert await asked == b"{1}"


@pytest.mark.parametrize(("size", "seals"), [(0, 0), (RECALL_NUMBERS_BYTES_MAX + 1, SEALS)], ids=["unsealed", "large"])
async def test_a_hostile_answer_ends_the_connection(served: Served, size: int, seals: int) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        asked = asyncio.create_task(agent.recall(LONG, entries=False))
        question = await fake.expect(Kind.RECALL)
        tell(fake, question.epoch, b"{}", size, seals)
        with pytest.raises(NotRecalled):
            await asked
        assert await fake.cut_off()
