"""SIGHUP: settings that change while a daemon runs, and files that change nothing."""

from __future__ import annotations

import base64
import grp
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.host import config
from profd.service.reload import RELOADED
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import host_pb2, host_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.support import people
from tests.support.attached import Captures, assert_covers, attached, streamers, values
from tests.support.daemon import RunningDaemon, control_answer, running_daemon
from tests.support.in_proc import descriptors
from tests.support.waiting import until

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"
# Who is not root gives a socket to a group of their own alone.
GROUP = grp.getgrgid(os.getgid()).gr_name if os.geteuid() else grp.getgrall()[-1].gr_name
CHANGED = f"""
socket_group = "{GROUP}"
admin_group = "{GROUP}"
store_bytes = "77MiB"
disabled_file = "DIRECTORY/off"
log_level = "debug"
log_format = "json"
workers = 3
metrics = "127.0.0.1:1"
worker_user = "daemon"
state_dir = "/nowhere"
socket = "/nowhere/s"
[kineto]
socket_dir = "/nowhere/k"
abstract = true
sender_filter = "off"
[sdk]
arena_bytes = "32MiB"
[gpu]
collector = "cupti-python"
cuda_graphs = "whole"
detach = true
process_metrics = true
pm_sampling_us = 500
[torch]
build = "off"
[audit]
copy = "syslog"
"""


@contextmanager
def with_file(text: str = "", *flags: str, **more: Any) -> Iterator[tuple[RunningDaemon, Path]]:
    """A daemon whose settings beside its places come from a file."""
    environ = {"PROFD_TORCH_BUILD": "", **more.pop("environ", {})}
    file = Path(f"/tmp/pd-{os.getpid()}-{os.urandom(4).hex()}.toml")
    file.write_text(text)
    try:
        with running_daemon("--config", str(file), *flags, environ=environ, **more) as daemon:
            yield daemon, file
    finally:
        file.unlink()


def lines(daemon: RunningDaemon, message: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]
    return [entry for entry in found if message in entry["message"]]


def reload(daemon: RunningDaemon, said: str = "settings reloaded") -> dict[str, Any]:
    """Send SIGHUP; what the log says of it."""
    before = len(lines(daemon, said))
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: len(lines(daemon, said)) > before, "the log tells of the reload")
    return lines(daemon, said)[-1]


def limit_bytes(daemon: RunningDaemon) -> int:
    stub = daemon.stub(host_pb2_grpc.HostServiceStub)
    request = host_pb2.GetHostStatusRequest()
    return int(stub.GetHostStatus(request, metadata=daemon.metadata(), timeout=60).store_limit_bytes)


def test_what_changes_at_once_and_what_waits_for_a_restart() -> None:
    # GIVEN flags for what a test's daemon cannot do without: a flag wins over the file, then as now
    with with_file() as (daemon, file):
        file.write_text(CHANGED.replace("DIRECTORY", str(daemon.directory)))
        # WHEN everything in the file changes
        changed = set(reload(daemon)["changed"])
        # THEN each setting that no flag holds is taken over, or named as one for a restart
        held = {"state_dir", "socket", "metrics", "kineto.abstract"}
        [later] = [entry["settings"] for entry in lines(daemon, "hold after a restart")]
        assert changed == set(RELOADED)
        assert set(later) == set(config.every_key()) - set(RELOADED) - held
        assert limit_bytes(daemon) == 77 << 20
        assert all(path.stat().st_gid == grp.getgrnam(GROUP).gr_gid for path in (daemon.socket, daemon.control))
        (daemon.directory / "off").write_text("maintenance")
        stub = daemon.stub(host_pb2_grpc.HostServiceStub)
        status = stub.GetHostStatus(host_pb2.GetHostStatusRequest(), metadata=daemon.metadata(), timeout=60)
        assert status.disabled_why == "maintenance"
        assert '"action":"daemon.reload"' in (daemon.state_dir / "audit.jsonl").read_text().replace('": "', '":"')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("wrokers = 1", "wrokers"),
        ("store_bytes = ", "not TOML"),
        ('admin_group = "no-such"\nstore_bytes = "1MiB"', "there is no group 'no-such'"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_changes_nothing(text: str | None, why: str) -> None:
    with with_file('store_bytes = "77MiB"') as (daemon, file):
        good = file.read_text()
        file.unlink()
        if text is not None:
            file.write_text(text)
        assert why in reload(daemon, "those of before hold")["why"]
        assert limit_bytes(daemon) == 77 << 20
        # AND the next file that is right is taken over
        file.write_text(good.replace("77", "78"))
        assert reload(daemon)["changed"] == ["store_bytes"]
        assert limit_bytes(daemon) == 78 << 20


def test_the_log_level_holds_at_once() -> None:
    with with_file('log_level = "debug"') as (daemon, file):
        file.write_text('log_level = "error"')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: '"daemon.reload"' in (daemon.state_dir / "audit.jsonl").read_text(), "it is reloaded")
        assert daemon.stop() == 0
        assert lines(daemon, "stopped") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="being somebody else takes root")
def test_an_admin_group_is_followed_at_once() -> None:
    group = grp.getgrnam(GROUP)
    with with_file(f'admin_group = "{GROUP}"', user=False) as (daemon, file):
        with people.being(5321, [group.gr_gid]):
            before = str(control_answer(daemon.control)["token"])
        assert is_admins(before)
        file.write_text("")
        assert reload(daemon)["changed"] == ["admin_group"]
        with people.being(5321, [group.gr_gid]):
            assert not is_admins(str(control_answer(daemon.control)["token"]))


@pytest.mark.skipif(os.geteuid() != 0, reason="being somebody else takes root")
def test_what_members_of_the_former_group_have_open_ends() -> None:
    group = grp.getgrnam(GROUP)
    with with_file(f'admin_group = "{GROUP}"', user=False) as (daemon, file):
        with people.being(5321, [group.gr_gid]):
            token = str(control_answer(daemon.control)["token"])
        # GIVEN a call that goes on for as long as its caller likes, and one of root's
        more = threading.Event()

        def chunks() -> Iterator[trace_pb2.ImportChunk]:
            yield trace_pb2.ImportChunk(filename="a")
            more.wait()

        stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
        theirs = stub.Import.future(chunks(), metadata=(("profd-token", token),), timeout=60)
        roots = stub.Import.future(chunks(), metadata=daemon.metadata(), timeout=60)
        try:
            until(lambda: spools(daemon) == 2, "both are open")
            # WHEN there is another group
            file.write_text("")
            assert reload(daemon)["changed"] == ["admin_group"]
            # THEN theirs ends, and root's goes on
            with pytest.raises(grpc.RpcError) as error:
                theirs.result(60)
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "admin group" in str(error.value.details())
            assert not roots.done()
        finally:
            more.set()


@pytest.mark.skipif(os.geteuid() != 0, reason="being somebody else takes root")
def test_those_who_may_not_connect_any_more_end() -> None:
    group, other = grp.getgrnam(GROUP), grp.getgrall()[-2]
    with with_file(f'socket_group = "{GROUP}"', user=False) as (daemon, file):
        tokens = {}
        for uid, groups in ((5321, [group.gr_gid]), (5322, [group.gr_gid, other.gr_gid])):
            with people.being(uid, groups):
                tokens[uid] = (("profd-token", str(control_answer(daemon.control)["token"])),)
        more = threading.Event()

        def chunks() -> Iterator[trace_pb2.ImportChunk]:
            yield trace_pb2.ImportChunk(filename="a")
            more.wait()

        stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
        theirs, members = [stub.Import.future(chunks(), metadata=token, timeout=60) for token in tokens.values()]
        try:
            until(lambda: spools(daemon) == 2, "both are open")
            # WHEN another group may connect, in which only one of them is
            file.write_text(f'socket_group = "{other.gr_name}"')
            assert reload(daemon)["changed"] == ["socket_group"]
            # THEN the call and the token of the one that is not end
            for call in (theirs, stub.ListTraces.future(trace_pb2.ListTracesRequest(), metadata=tokens[5321])):
                with pytest.raises(grpc.RpcError, match="socket_group") as error:
                    call.result(60)
                assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert not members.done()
            stub.ListTraces(trace_pb2.ListTracesRequest(), metadata=tokens[5322], timeout=60)
        finally:
            more.set()


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon for all users takes root")
def test_a_recording_goes_on_where_another_group_may_connect(tmp_path: Path) -> None:
    """Its streamer, which was in the former group, is nobody's and must connect, too."""
    groups = [found.gr_name for found in grp.getgrall()[-2:]]
    with (
        with_file(f'socket_group = "{groups[0]}"', user=False) as (daemon, file),
        attached(daemon, tmp_path) as job,
    ):
        capture = Captures(daemon).recording(job.pid)
        before = job.count
        until(lambda: bool(streamers(daemon)), "there is a streamer")
        former = streamers(daemon)
        file.write_text(f'socket_group = "{groups[1]}"')
        assert reload(daemon)["changed"] == ["socket_group"]
        until(lambda: streamers(daemon) not in ([], former), "there is another one")
        job.counts_on()
        after = job.count
        [target] = Captures(daemon, apart=True).stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert_covers(values(daemon, target.trace), before, after)


def spools(daemon: RunningDaemon) -> int:
    """Nameless files of imports that are under way."""
    held = descriptors(daemon.process.pid)
    return sum(target.startswith(str(daemon.state_dir)) and target.endswith("(deleted)") for target in held)


def is_admins(token: str) -> bool:
    return bool(json.loads(base64.urlsafe_b64decode(token.partition(".")[0]))["admin"])


ON_A_TERMINAL = "import os, sys; from profd import main; _, end = os.openpty(); os.dup2(end, 2); sys.exit(main.main())"


def test_a_terminal_that_goes_away_ends_the_daemon_that_logs_to_it() -> None:
    with running_daemon(program=("-c", ON_A_TERMINAL)) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.process.wait(60) == 0
        assert not daemon.socket.exists()


def test_the_table_says_what_is_reloaded() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `") and "PROFD_" in line]
    said = {re.sub(r"\[(\w+)\] ", r"\1.", row.split("`")[1]): row.split("|")[-2].strip() for row in rows}
    assert said == {key: "holds" if key in RELOADED else "restart" for key in config.every_key()}
