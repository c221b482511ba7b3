"""A process that is stuck within execve, at a daemon of everybody: it is told of it, and serves all others."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from profd.sources.kineto import wire

from tests.support import people
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.stuck_exec import StuckProcess, stuck_process, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

MALLORY, BOB = 61301, 61302
SECONDS = 60.0  # after which nobody is served

# It connects, and what it has said waits there when it is stuck. Inherited, so that exec does not hang up.
CONNECTS = """
kept = []
for name in ("control.sock", "agent.sock"):
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    kept[-1].connect(f"{directory}/{name}")
asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
asking.bind(f"{directory}/kineto/{client}")
asking.sendto(bytes.fromhex("{poll}"), f"{directory}/kineto/{server}")
for one in (*kept, asking):
    one.set_inheritable(True)
"""


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(user=False) as running:
        yield running


def profctl(daemon: RunningDaemon, uid: int, *words: object) -> tuple[int, str]:
    done = people.profctl(uid, daemon.directory, *words, seconds=SECONDS)
    return done.returncode, done.stdout + done.stderr


def everybody_is_served(daemon: RunningDaemon) -> None:
    """By each of the sockets."""
    assert profctl(daemon, BOB, "list")[0] == 0
    with people.doing(BOB, people.SPIN, daemon.directory) as job:
        assert job.stdout is not None
        pid = job.stdout.readline().strip()
        code, said = profctl(daemon, BOB, "ps", "--all")
        assert code == 0, said
        assert pid in said
        code, said = profctl(daemon, BOB, "start", "--pid", pid, "--duration", "100ms", "--source", "pyspy", "--detach")
        assert code == 0, said
    assert daemon.process.poll() is None


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[StuckProcess]:
    with stuck_process(tmp_path / "mount", MALLORY) as process:
        yield process


def test_others_list_and_start(daemon: RunningDaemon, stuck: StuckProcess) -> None:
    everybody_is_served(daemon)
    assert str(stuck.pid) not in profctl(daemon, 0, "ps", "--all")[1]


@pytest.mark.parametrize("uid", [0, MALLORY])
def test_who_starts_it_is_told_why_not(daemon: RunningDaemon, stuck: StuckProcess, uid: int) -> None:
    code, said = profctl(daemon, uid, "start", "--pid", stuck.pid, "--duration", "1s")
    assert code != 0
    assert f"process {stuck.pid} does not answer" in " ".join(said.split())
    everybody_is_served(daemon)


def test_who_asks_where_it_is_is_told_why_not(daemon: RunningDaemon, stuck: StuckProcess) -> None:
    code, said = profctl(daemon, 0, "where", "--pid", stuck.pid)
    assert code != 0
    assert f"process {stuck.pid} does not answer" in " ".join(said.split())
    everybody_is_served(daemon)


def test_one_that_has_connected_to_every_socket(daemon: RunningDaemon, tmp_path: Path) -> None:
    text = CONNECTS.replace("{directory}", str(daemon.directory)).replace("{server}", wire.DAEMON_NAME)
    text = text.replace("{client}", f"{wire.CLIENT_PREFIX}{'0' * 8}-0000-0000-0000-{'0' * 12}")
    text = text.replace("{poll}", wire.poll(3, 0, (os.getpid(),)).hex())
    # GIVEN a daemon that comes to see who has connected only when that is stuck
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        with stuck_process(tmp_path / "mount", MALLORY, text):
            daemon.process.send_signal(signal.SIGCONT)
            # THEN nobody waits for it
            everybody_is_served(daemon)
            agents_are_served(daemon)
            assert "does_not_answer" in daemon.log
    finally:
        with suppress(ProcessLookupError):
            daemon.process.send_signal(signal.SIGCONT)


def agents_are_served(daemon: RunningDaemon) -> None:
    """One that says what is no HELLO is told so, or cut off: somebody has read it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.settimeout(SECONDS)
        agent.connect(str(daemon.directory / "agent.sock"))
        agent.send(b"nonsense")
        with suppress(ConnectionError):
            assert agent.recv(4096) is not None
