"""A real daemon: start, identity, health, shutdown, restart."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from profclient.connection import Daemon
from profclient.errors import UnreachableError
from profproto.v1 import host_pb2, host_pb2_grpc

from tests.support import malloc_habits
from tests.support.daemon import PROGRAM, RunningDaemon, control_answer, running_daemon, start_daemon
from tests.support.in_proc import said_of
from tests.support.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon() as daemon:
        yield daemon


def status(daemon: RunningDaemon) -> host_pb2.HostStatus:
    stub = daemon.stub(host_pb2_grpc.HostServiceStub)
    return stub.GetHostStatus(host_pb2.GetHostStatusRequest(), metadata=daemon.metadata(), timeout=60)


def test_status_of_the_host(daemon: RunningDaemon) -> None:
    found = status(daemon)
    assert (found.pid, found.mode, found.enabled) == (daemon.process.pid, "user", True)
    assert found.state_dir == str(daemon.state_dir)
    assert {source.name for source in found.sources} == {"sdk", "kineto", "jax", "cuda", "pyspy"}
    assert {check.verdict for check in found.checks} <= {"ok", "warning", "problem"}
    assert all(check.fix for check in found.checks if check.verdict != "ok")


def test_control_socket_says_where_grpc_is(daemon: RunningDaemon) -> None:
    answer = control_answer(daemon.control)
    assert answer["grpc"] == str(daemon.socket)
    assert answer["expires_s"] == 300


@pytest.mark.parametrize("metadata", [(), (("profd-token", "forged.token"),)])
def test_calls_without_a_valid_token_are_refused(daemon: RunningDaemon, metadata: tuple[tuple[str, str], ...]) -> None:
    stub = daemon.stub(host_pb2_grpc.HostServiceStub)
    with pytest.raises(grpc.RpcError) as caught:
        stub.GetHostStatus(host_pb2.GetHostStatusRequest(), metadata=metadata, timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "control.sock" in str(caught.value.details())
    (detail,) = [json.loads(value) for key, value in caught.value.trailing_metadata() if key == "profd-error"]
    assert detail == {"kind": "Unidentified", "message": caught.value.details()}
    assert '"denied"' in (daemon.state_dir / "audit.jsonl").read_text()


def test_token_of_a_process_that_has_ended_is_refused(daemon: RunningDaemon) -> None:
    script = (
        "import json, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.connect(sys.argv[1]); print(json.loads(s.recv(65536))['token'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(daemon.control)], capture_output=True, text=True, check=True
    )
    stub = daemon.stub(host_pb2_grpc.HostServiceStub)
    with pytest.raises(grpc.RpcError, match="has ended") as caught:
        stub.GetHostStatus(
            host_pb2.GetHostStatusRequest(), metadata=(("profd-token", done.stdout.strip()),), timeout=60
        )
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_client_outlives_a_daemon_that_was_killed() -> None:
    with running_daemon() as before, Daemon(before.socket) as client:
        asked = host_pb2.GetHostStatusRequest()
        assert client.call(client.host.GetHostStatus, asked).pid == before.process.pid
        # WHEN another daemon follows, which does not know the client's token
        before.process.kill()
        before.process.wait()
        after = start_daemon(before.directory)
        try:
            # THEN calls find it: at once, or once gRPC has looked again
            until(lambda: _pid(client) == after.process.pid, "the client found the successor")
        finally:
            after.stop()


def _pid(client: Daemon) -> int | None:
    try:
        return int(client.call(client.host.GetHostStatus, host_pb2.GetHostStatusRequest()).pid)
    except UnreachableError:
        return None


def test_health_needs_no_token(daemon: RunningDaemon) -> None:
    stub = daemon.stub(health_pb2_grpc.HealthStub)
    for service in ("", "profd.v1.HostService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=60)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_our_services(daemon: RunningDaemon) -> None:
    stub = daemon.stub(reflection_pb2_grpc.ServerReflectionStub)
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    (answer,) = stub.ServerReflectionInfo(asked, timeout=60)
    names = {service.name for service in answer.list_services_response.service}
    assert {"profd.v1.HostService", "grpc.health.v1.Health"} <= names


async def test_async_client(daemon: RunningDaemon) -> None:
    token = await asyncio.to_thread(daemon.token)
    async with grpc.aio.insecure_channel(f"unix:{daemon.socket}") as channel:
        stub = host_pb2_grpc.HostServiceStub(channel)
        found = await stub.GetHostStatus(
            host_pb2.GetHostStatusRequest(), metadata=(("profd-token", token),), timeout=60
        )
    assert found.pid == daemon.process.pid


def test_sockets_are_the_owners_only(daemon: RunningDaemon) -> None:
    for path in (daemon.socket, daemon.control):
        assert path.stat().st_mode & 0o777 == 0o600


def test_daemon_never_imports_the_heavy_parts(daemon: RunningDaemon) -> None:
    maps = Path(f"/proc/{daemon.process.pid}/maps").read_text()
    assert not any(name in maps for name in ("pyarrow", "duckdb"))


def test_second_daemon_names_the_first(daemon: RunningDaemon) -> None:
    with pytest.raises(AssertionError, match=rf"(?s)ended with 1 .*pid {daemon.process.pid}\b"):
        start_daemon_beside(daemon)
    assert status(daemon).pid == daemon.process.pid


def start_daemon_beside(daemon: RunningDaemon) -> None:
    other = daemon.directory / "other"
    other.mkdir()
    # its own state directory, the same socket
    start_daemon(other, "--socket", str(daemon.socket)).kill()


def test_second_daemon_on_the_same_state_names_the_first(daemon: RunningDaemon) -> None:
    elsewhere = daemon.directory / "elsewhere"
    elsewhere.mkdir()
    said = rf"(?s)ended with 1 .*state directory .* is in use by another profd \(pid {daemon.process.pid}\b"
    with pytest.raises(AssertionError, match=said):
        start_daemon(elsewhere, "--state-dir", str(daemon.state_dir)).kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="workers of another uid take root")
def test_root_does_not_start_where_its_workers_would_be_root(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "profd.main", "--state-dir", str(tmp_path / "state"), "--metrics", "off"]
    command += ["--socket", str(tmp_path / "profd.sock"), "--no-kineto-abstract"]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    environ = {**os.environ, "PYTHONPATH": str(closed)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "never as root; but user" in done.stderr
    assert "Install profd" in done.stderr
    assert not (tmp_path / "profd.sock").exists()


def test_plain_asyncio_will_do(tmp_path: Path) -> None:
    """uvloop is an optimisation, not a need."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvloop'] = None\n")
    with running_daemon(environ={"PYTHONPATH": str(tmp_path)}) as daemon:
        assert "uvloop" not in Path(f"/proc/{daemon.process.pid}/maps").read_text()
        assert status(daemon).pid == daemon.process.pid
        assert daemon.stop() == 0


def test_graceful_end_leaves_no_sockets_and_no_workers() -> None:
    with running_daemon() as daemon:
        workers = children(daemon.process.pid)
        assert workers
        assert daemon.stop() == 0
        assert not daemon.socket.exists()
        assert not daemon.control.exists()
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
        assert "stopped" in daemon.log


def test_restart_after_sigkill_replaces_the_leftovers() -> None:
    with running_daemon() as daemon:
        workers = children(daemon.process.pid)
        pidfds = [os.pidfd_open(pid) for pid in workers]
        daemon.kill()
        assert daemon.socket.exists()
        again = start_daemon(daemon.directory)
        try:
            assert status(again).pid == again.process.pid
            for pidfd in pidfds:  # they die with their daemon
                assert select.select([pidfd], [], [], 60)[0]
        finally:
            for pidfd in pidfds:
                os.close(pidfd)
            assert again.stop() == 0


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def test_socket_path_that_is_a_file_is_left_alone(tmp_path: Path) -> None:
    with running_daemon() as daemon:
        daemon.stop()
        daemon.socket.write_text("precious")
        with pytest.raises(AssertionError, match="not a socket"):
            start_daemon(daemon.directory)
        assert daemon.socket.read_text() == "precious"


def test_taken_metrics_address_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(AssertionError, match="Choose another address with --metrics"),
            running_daemon("--metrics", f"127.0.0.1:{port}"),
        ):
            pass


def test_signal_while_idle_is_the_same_for_sigint() -> None:
    with running_daemon() as daemon:
        daemon.process.send_signal(signal.SIGINT)
        assert daemon.process.wait(60) == 0


def test_version() -> None:
    done = subprocess.run([sys.executable, "-m", "profd.main", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("profd 0.")


@pytest.mark.skipif(not malloc_habits.KNOWN, reason="this C library does not say what it keeps")
def test_a_daemon_keeps_little_of_what_it_frees() -> None:
    program = f"import sys; from profd import main; main.main(sys.argv[1:])\n{malloc_habits.SAYS}"
    with running_daemon(program=("-c", program)) as daemon:
        assert daemon.stop() == 0
        assert daemon.log.endswith("large blocks: mapped, heaps: 1\n")


def test_closed_streams_are_the_null_device() -> None:
    """GIVEN a caller that has closed all three WHEN profd starts THEN it serves; a socket would be its stderr."""
    closing = "import os, sys; os.closerange(0, 3); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    with running_daemon(program=("-c", closing, *PROGRAM)) as daemon:
        assert status(daemon).version
        streams = [os.readlink(f"/proc/{daemon.process.pid}/fd/{number}") for number in range(3)]
        assert streams == ["/dev/null"] * 3
        begun = children(daemon.process.pid)
        assert begun
        # One that has ended meanwhile has no descriptors, and no memory.
        assert all(Path(f"/proc/{pid}/fd/2").exists() or not said_of(pid, "maps") for pid in begun)
