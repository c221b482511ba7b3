"""One user does all they can to a daemon as root; another, and root, work on."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from profd.attached.agents.protocol import PacketKind, encode, parse_untrusted_packet
from profd.limits import CONNECTIONS_ANSWERED_PER_UID_MAX, CONNECTIONS_PER_UID_MAX
from profproto.v1 import capture_pb2, capture_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.integration.daemon.test_work import ROWS, chrome_json, chunks, metrics_of, workers_of
from tests.support import people
from tests.support.captures import needs_ptrace
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.fake_agent import HELLO
from tests.support.python_jobs import SAMPLED
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")]

ALICE, BOB = 5321, 5322
SECONDS = 120.0


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(user=False) as daemon:
        yield daemon


def line(process: subprocess.Popen[str]) -> str:
    """What it says next."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SECONDS)[0], "it says nothing"
    said = process.stdout.readline().strip()
    assert said, "it has ended"
    return said


def import_for_all(daemon: RunningDaemon) -> str:
    """A trace of root's that everybody may read."""
    stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
    trace = stub.Import(chunks(chrome_json()), metadata=daemon.metadata(), timeout=SECONDS).trace
    asked = trace_pb2.ShareTraceRequest(id=trace.id)
    getattr(asked, "with").append("*")
    stub.ShareTrace(asked, metadata=daemon.metadata(), timeout=SECONDS)
    return str(trace.id)


def everybody_lists(daemon: RunningDaemon) -> None:
    stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
    stub.ListTraces(trace_pb2.ListTracesRequest(), metadata=daemon.metadata(), timeout=SECONDS)
    done = people.profctl(BOB, daemon.directory, "list")
    assert done.returncode == 0, done.stderr


@contextmanager
def stopped_workers(daemon: RunningDaemon) -> Iterator[None]:
    """So that every job waits until the block ends."""
    pids = workers_of(daemon.process.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_idle_calls_of_one_user(daemon: RunningDaemon) -> None:
    with people.doing(ALICE, people.IDLE_CALLS, daemon.directory, 1100) as calls:
        assert line(calls) == "refused"
        everybody_lists(daemon)


def test_connections_of_one_user(daemon: RunningDaemon) -> None:
    most = CONNECTIONS_PER_UID_MAX
    with people.doing(ALICE, people.CONNECTIONS, daemon.directory, most + 100) as connections:
        ends = json.loads(line(connections))
        # THEN who came last is told why, as far as that is cheap, and gRPC has not seen them
        assert ends == {
            "held": most,
            "refused": CONNECTIONS_ANSWERED_PER_UID_MAX,
            "closed": 100 - CONNECTIONS_ANSWERED_PER_UID_MAX,
        }
        everybody_lists(daemon)


def test_profctl_says_that_there_are_too_many_connections(daemon: RunningDaemon) -> None:
    with people.doing(ALICE, people.CONNECTIONS, daemon.directory, CONNECTIONS_PER_UID_MAX) as connections:
        line(connections)
        done = people.profctl(ALICE, daemon.directory, "list")
        assert done.returncode == 5, done
        assert f"{CONNECTIONS_PER_UID_MAX} connections at once (of one user) are in use" in done.stderr


@pytest.mark.parametrize("method", ["/profd.v1.TraceService/ListTraces", "/grpc.health.v1.Health/Watch"])
def test_hundreds_of_connections_with_hundreds_of_streams(method: str) -> None:
    with (
        running_daemon("--metrics", "127.0.0.1:0", user=False) as daemon,
        people.doing(ALICE, people.FLOOD, daemon.directory, 400, method, 400) as flood,
        people.doing(BOB, people.CALLS, daemon.directory, 200) as calls,
    ):
        assert line(flood) == "flooding"
        assert json.loads(line(calls)) == {"OK": 200}
        assert flood.poll() is None
        everybody_lists(daemon)
        # AND that is because most of it has not come in
        found = metrics_of(daemon)
        assert found["profd_connections"] <= CONNECTIONS_PER_UID_MAX + 3
        assert found["profd_connections_throttled_total"] > 0
        assert found['profd_refusals_total{kind="connections"}'] > 0


@pytest.mark.parametrize("name", ["control.sock", "agent.sock"])
def test_who_connects_and_goes_all_the_time(daemon: RunningDaemon, name: str) -> None:
    with people.doing(ALICE, people.CONNECTS_AND_GOES, daemon.directory, daemon.directory / name) as flood:
        assert line(flood) == "begun"
        for _ in range(3):
            everybody_lists(daemon)


def test_calls_that_need_no_token(daemon: RunningDaemon) -> None:
    with people.doing(ALICE, people.WATCHES_WITHOUT_A_TOKEN, daemon.directory, 1100) as watches:
        assert line(watches) == "refused"
        everybody_lists(daemon)
        health = health_pb2_grpc.HealthStub(daemon.channel())
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@needs_ptrace
@pytest.mark.parametrize("asking", [people.TOPS, people.QUERIED_TOPS], ids=["KeyAverages", "Query"])
def test_questions_of_one_user_fail_no_capture_of_another(daemon: RunningDaemon, asking: str) -> None:
    trace = import_for_all(daemon)
    with (
        people.doing(BOB, people.SPIN, daemon.directory) as job,
        people.doing(ALICE, asking, daemon.directory, 300, trace) as tops,
    ):
        pid = line(job)
        with stopped_workers(daemon):
            assert line(tops) == "refused"
            started = people.profctl(
                *(BOB, daemon.directory, "start", "--pid", pid, "--duration", SAMPLED, "--source", "pyspy"),
                *("--detach", "--json"),
            )
            assert started.returncode == 0, started.stderr
            capture = json.loads(started.stdout)["capture"]
            # THEN what it has recorded waits for a worker, or would have failed by now
            until(lambda: state_of(daemon, capture) >= capture_pb2.STATE_COLLATING, "it has recorded")
        done = people.profctl(BOB, daemon.directory, "wait", capture)
        assert done.returncode == 0, done.stderr


def state_of(daemon: RunningDaemon, capture: str) -> int:
    stub = daemon.stub(capture_pb2_grpc.CaptureServiceStub)
    return int(stub.GetCapture(capture_pb2.CaptureRef(id=capture), metadata=daemon.metadata(), timeout=SECONDS).state)


@pytest.mark.parametrize(
    "asking", [people.SQLS_THAT_NOBODY_READS, people.QUERIED_SQLS_THAT_NOBODY_READS], ids=["Sql", "Query"]
)
def test_streams_that_nobody_reads(daemon: RunningDaemon, asking: str) -> None:
    trace = import_for_all(daemon)
    with people.doing(ALICE, asking, daemon.directory, 100, trace) as sqls:
        assert line(sqls) == "refused"
        done = people.profctl(BOB, daemon.directory, "sql", trace, "SELECT count(*) AS n FROM events")
        assert done.returncode == 0, done.stderr
        assert str(ROWS) in done.stdout


def is_refused(daemon: RunningDaemon, pid: int) -> bool:
    """Whether Alice's next capture is beyond her rate, and `profctl` says so; now and then she has a start left."""
    asked = people.profctl(ALICE, daemon.directory, "start", "--pid", pid, "--duration", "1s")
    return asked.returncode == 5 and "starts of captures a second" in asked.stderr


@needs_ptrace
def test_starts_of_one_user(daemon: RunningDaemon) -> None:
    with (
        people.doing(BOB, people.SPIN, daemon.directory) as job,
        people.doing(ALICE, people.STARTS, daemon.directory) as starts,
    ):
        pid = line(job)
        assert line(starts) == "again"
        until(lambda: is_refused(daemon, starts.pid), "the rate is used up")
        done = people.profctl(BOB, daemon.directory, "start", "--pid", pid, "--duration", SAMPLED, "--source", "pyspy")
        assert done.returncode == 0, (done.stdout, done.stderr)


PASSES_WHAT_LINGERS = """
from tests.support.lingering import lingering
with lingering() as sock:
    agents = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(8)]
    for agent in agents:
        agent.connect(rest[0])
        socket.send_fds(agent, [bytes.fromhex(rest[1])], [sock.fileno()])
    sock.close()
    say("passed")
    signal.pause()
"""

ATTACHES = """
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect(rest[0])
agent.send(bytes.fromhex(rest[1]))
say(agent.recv(65536).hex())
"""


def test_sockets_that_linger_passed_as_arenas(daemon: RunningDaemon) -> None:
    """Who closes the last one waits; that is a porter of Alice's, and not the daemon."""
    asked = (str(daemon.directory / "agent.sock"), encode(PacketKind.HELLO, 0, **HELLO).hex())
    with contextlib.ExitStack() as attacks:
        for _ in range(3):
            os.kill(daemon.process.pid, signal.SIGSTOP)  # so that Alice has not the last one
            attack = attacks.enter_context(people.doing(ALICE, PASSES_WHAT_LINGERS, daemon.directory, *asked))
            assert line(attack) == "passed"
            os.kill(daemon.process.pid, signal.SIGCONT)
            everybody_lists(daemon)
        with people.doing(BOB, ATTACHES, daemon.directory, *asked) as job:
            assert parse_untrusted_packet(bytes.fromhex(line(job))).kind == PacketKind.WELCOME


@pytest.mark.parametrize(
    ("name", "kind"), [("profd.sock", socket.SOCK_STREAM), ("control.sock", socket.SOCK_SEQPACKET)]
)
def test_nobody_passes_descriptors(daemon: RunningDaemon, name: str, kind: socket.SocketKind) -> None:
    """Whoever drops the last one of a socket that lingers waits for as long as its owner has said."""
    with socket.socket(socket.AF_UNIX, kind) as client:
        try:
            client.getsockopt(socket.SOL_SOCKET, 83)
        except OSError:
            pytest.skip("this kernel has no SO_PASSRIGHTS (Linux 6.16)")
        client.connect(str(daemon.directory / name))
        with pytest.raises(PermissionError):
            socket.send_fds(client, [b"x"], [0])
