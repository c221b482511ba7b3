"""A daemon as on a kernel without SO_PASSRIGHTS (before Linux 6.16): descriptors come with whatever anybody sends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.limits import CONNECTIONS_ANSWERED_PER_UID_MAX, CONNECTIONS_PER_UID_MAX

from tests.integration.daemon.test_fair_shares import ALICE, BOB, everybody_lists, line
from tests.integration.daemon.test_work import chrome_json, metrics_of
from tests.support import people
from tests.support.captures import needs_ptrace
from tests.support.daemon import ON_AN_OLD_KERNEL, RunningDaemon, running_daemon
from tests.support.in_proc import children, said_of
from tests.support.kineto_client import KinetoClient
from tests.support.python_jobs import SAMPLED
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")]

ROOT = str(Path(__file__).parents[3])


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon("--metrics", "127.0.0.1:0", user=False, program=ON_AN_OLD_KERNEL) as daemon:
        yield daemon


@contextlib.contextmanager
def standing(daemon: RunningDaemon) -> Iterator[None]:
    """It and its porters: so that who passes something has not the last one."""
    pids = [daemon.process.pid, *porters_of(daemon)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def porters_of(daemon: RunningDaemon) -> list[int]:
    return [pid for pid in children(daemon.process.pid) if said_of(pid, "comm") == "profd-porter\n"]


# Over each socket, eight times; with a call's first bytes where bytes are read.
PASSES = """
import sys; sys.path.insert(0, {root!r})
from tests.support import http2
from tests.support.lingering import lingering
kind, path, message = getattr(socket, rest[0]), rest[1], bytes.fromhex(rest[2]) or http2.BEGIN
with lingering() as sock:
    held = [socket.socket(socket.AF_UNIX, kind) for _ in range(8)]
    for one in held:
        one.connect(path)
        socket.send_fds(one, [message], [sock.fileno()])
    for one in held[4:]:
        one.close()
    sock.close()
    say("passed")
    signal.pause()
""".replace("{root!r}", repr(ROOT))


@contextlib.contextmanager
def passing(daemon: RunningDaemon, kind: str, name: str, message: bytes = b"") -> Iterator[None]:
    with contextlib.ExitStack() as attack:
        with standing(daemon):
            asked = (kind, daemon.directory / name, message.hex())
            assert line(attack.enter_context(people.doing(ALICE, PASSES, daemon.directory, *asked))) == "passed"
        yield


@pytest.mark.parametrize(("kind", "name"), [("SOCK_STREAM", "profd.sock"), ("SOCK_SEQPACKET", "control.sock")])
def test_sockets_that_linger(daemon: RunningDaemon, kind: str, name: str) -> None:
    with contextlib.ExitStack() as attacks:
        for _ in range(3):
            attacks.enter_context(passing(daemon, kind, name))
            everybody_lists(daemon)
    everybody_lists(daemon)


async def test_sockets_that_linger_with_datagrams(daemon: RunningDaemon) -> None:
    with passing(daemon, "SOCK_DGRAM", "kineto/dynolog", b"x"):
        with KinetoClient(daemon.kineto_dir) as client:
            assert await client.ask() == ""
        until(lambda: metrics_of(daemon)["profd_kineto_waits_total"] > 0, "a wait was ended")
        everybody_lists(daemon)
    assert "descriptors are passed to kineto's socket" in daemon.log


def test_connections_count_for_whose_they_are(daemon: RunningDaemon) -> None:
    most = CONNECTIONS_PER_UID_MAX
    with people.doing(ALICE, people.CONNECTIONS, daemon.directory, most + 100) as connections:
        assert json.loads(line(connections)) == {
            "held": most,
            "refused": CONNECTIONS_ANSWERED_PER_UID_MAX,
            "closed": 100 - CONNECTIONS_ANSWERED_PER_UID_MAX,
        }
        everybody_lists(daemon)
        until(lambda: metrics_of(daemon)["profd_connections"] >= most, "they are open")
    until(lambda: metrics_of(daemon)["profd_connections"] < most, "they have ended with their process")


def test_a_flood_of_streams(daemon: RunningDaemon) -> None:
    with (
        people.doing(ALICE, people.FLOOD, daemon.directory, 400, "/profd.v1.TraceService/ListTraces", 400) as flood,
        people.doing(BOB, people.CALLS, daemon.directory, 100) as calls,
    ):
        assert line(flood) == "flooding"
        assert json.loads(line(calls)) == {"OK": 100}
        assert flood.poll() is None


@needs_ptrace
def test_a_user_works_through_their_porter(daemon: RunningDaemon) -> None:
    with people.doing(BOB, people.SPIN, daemon.directory) as job:
        pid = line(job)
        done = people.profctl(BOB, daemon.directory, "start", "--pid", pid, "--duration", SAMPLED, "--source", "pyspy")
        assert done.returncode == 0, (done.stdout, done.stderr)
    assert len(porters_of(daemon)) >= 1
    # AND bulk in both directions is what it was
    made = json.loads(people.profctl(BOB, daemon.directory, "list", "--json").stdout)
    assert made
    large = chrome_json()
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:  # pytest's own folders are closed to Bob
        Path(name).chmod(0o755)
        file = Path(name) / "large.json"
        file.write_bytes(large)
        done = people.profctl(BOB, daemon.directory, "import", file)
    assert done.returncode == 0, (done.stdout, done.stderr)
    # AND nobody else's is Bob's
    others = people.profctl(ALICE, daemon.directory, "list", "--json")
    assert others.returncode == 0
    assert json.loads(others.stdout) != made


def test_descriptors_come(daemon: RunningDaemon) -> None:
    """Or the tests above say nothing."""
    for kind, name in ((socket.SOCK_STREAM, "profd.sock"), (socket.SOCK_SEQPACKET, "control.sock")):
        with socket.socket(socket.AF_UNIX, kind) as client, people.being(ALICE):
            client.connect(str(daemon.directory / name))
            socket.send_fds(client, [b"x"], [0])


def test_it_stops_at_once_with_callers_connected(daemon: RunningDaemon) -> None:
    with people.doing(ALICE, people.CONNECTIONS, daemon.directory, 8) as connections:
        line(connections)
        porters = porters_of(daemon)
        assert porters
        assert daemon.stop() == 0
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in porters), "they have ended, too")
