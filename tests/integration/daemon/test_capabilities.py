"""A daemon of the whole host with fewer capabilities, as a container gives them: what is lost, and the fix."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
from profd.kernel.privileges import PRIVILEGES
from profd.sources.pyspy import tool
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import host_pb2, host_pb2_grpc

from tests.support.attached import Captures, attached
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.floods import flood, needs_compiler, needs_filter
from tests.support.kineto_client import KinetoClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a daemon of the whole host takes root"),
]

OPTIONAL = [privilege.name for privilege in PRIVILEGES if not privilege.needed]
GIVEN_UP = [privilege.name for privilege in PRIVILEGES if privilege.given_up]
BPF = 1 << 39
ALICE = 5321
TRIES = 10  # libkineto's, with pauses of 10 ms that double
NOT_FILTERED = "senders are not filtered by the kernel"


def without(*lacking: str) -> tuple[str, str]:
    """What Python runs: a daemon that holds all of them but these."""
    kept = sum(1 << privilege.number for privilege in PRIVILEGES if privilege.name not in lacking)
    give_up = f"from profd.kernel import capabilities as c; c.bound({kept}); c.hold({kept}, {kept})"
    return "-c", f"import sys; {give_up}; from profd import main; sys.exit(main.main())"


def test_without_those_it_can_miss_it_records_and_the_doctor_names_them(tmp_path: Path) -> None:
    with running_daemon(user=False, program=without(*OPTIONAL)) as daemon:
        found = checked(daemon, "capabilities")
        assert found.verdict == "warning"
        for name in set(OPTIONAL) - set(GIVEN_UP):
            assert f"no {name}: " in found.detail
            assert f"--cap-add={name.removeprefix('CAP_')}" in found.fix
        with attached(daemon, tmp_path) as job:
            [target] = Captures(daemon).record(job.pid, source="sdk").targets
            assert target.state == pb.STATE_STORED, target.message


def checked(daemon: RunningDaemon, name: str) -> Any:
    """What the doctor says of one thing."""
    stub = daemon.stub(host_pb2_grpc.HostServiceStub)
    checks = stub.GetHostStatus(host_pb2.GetHostStatusRequest(), metadata=daemon.metadata(), timeout=60).checks
    [found] = [check for check in checks if check.name == name]
    return found


def of_processes(daemon: RunningDaemon) -> list[str]:
    """What /proc says of each thread of the daemon, and of its children and theirs."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {daemon.process.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    found = []
    for status in (path for pid in family for path in Path(f"/proc/{pid}/task").glob("*/status")):
        with contextlib.suppress(OSError):
            found.append(status.read_text())
    return found


@needs_filter
def test_the_filter_on_senders_is_loaded_and_nobody_has_what_loads_it(tmp_path: Path) -> None:
    with running_daemon(user=False, program=without()) as daemon, attached(daemon, tmp_path) as job:
        [target] = Captures(daemon).record(job.pid, source="sdk").targets
        assert target.state == pb.STATE_STORED, target.message
        statuses = of_processes(daemon)
        assert len(statuses) > 10  # threads, workers, porters
        for status in statuses:
            held = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith(("Cap", "No", "Name")))
            assert held["NoNewPrivs"] == "1", held  # of a daemon without CAP_SETPCAP the bounding set stays
            assert not any(int(held[f"Cap{kind}"], 16) & BPF for kind in ("Inh", "Prm", "Eff", "Amb")), held
        assert checked(daemon, "kineto floods").verdict == "ok"
        assert "the kernel drops what a process" in checked(daemon, "kineto floods").detail
        assert checked(daemon, "capabilities").verdict == "ok"
        assert NOT_FILTERED not in daemon.log


def test_without_cap_bpf_it_says_so_once_and_answers_polls() -> None:
    with running_daemon(user=False, program=without("CAP_BPF")) as daemon:
        assert daemon.log.count(NOT_FILTERED) == 1
        found = checked(daemon, "kineto floods")
        assert (found.verdict, "no CAP_BPF" in found.detail) == ("warning", True)
        assert "--cap-add=BPF" in found.fix
        with KinetoClient(daemon.kineto_dir) as client:
            assert asyncio.run(client.ask()) == ""


def test_switched_off_it_is_not_loaded() -> None:
    with running_daemon(user=False, environ={"PROFD_KINETO_SENDER_FILTER": "off"}) as daemon:
        assert NOT_FILTERED not in daemon.log
        found = checked(daemon, "kineto floods")
        assert (found.verdict, found.detail.split()[0]) == ("ok", "not")


@needs_filter
@needs_compiler
def test_a_flood_of_another_user_is_counted_and_polls_beside_it_are_answered() -> None:
    with running_daemon(user=False) as daemon, KinetoClient(daemon.kineto_dir) as client:
        with flood(client.daemon, ALICE, processes=2) as flooder:
            for _ in range(20):
                client.poll_until_taken(TRIES)
                assert asyncio.run(client.ask()) == ""
            taken = flooder.end()
        dropped = int(re.findall(r"(\d+) datagrams so far", checked(daemon, "kineto floods").detail)[0])
        assert taken / 2 < dropped < taken


IN_A_NETWORK_OF_ITS_OWN = (
    "import ctypes, sys; assert ctypes.CDLL(None).unshare(0x40000000) == 0; "  # CLONE_NEWNET
    "from profd import main; sys.exit(main.main())"
)


def test_without_the_hosts_network_processes_attach_and_are_sampled(tmp_path: Path) -> None:
    with (
        running_daemon(user=False, program=("-c", IN_A_NETWORK_OF_ITS_OWN)) as daemon,
        attached(daemon, tmp_path) as job,
    ):
        for source in ("sdk", *(["pyspy"] if tool.find() is not None else [])):
            [target] = Captures(daemon).record(job.pid, source=source).targets
            assert target.state == pb.STATE_STORED, target.message


@pytest.mark.parametrize("name", [privilege.name for privilege in PRIVILEGES if privilege.needed])
def test_without_one_that_it_needs_it_does_not_start_and_says_what_gives_it(name: str) -> None:
    said = rf"(?s)ended with 1 .*the daemon has no {name}\. .*--cap-add={name.removeprefix('CAP_')}"
    with pytest.raises(AssertionError, match=said), running_daemon(user=False, program=without(name)):
        pass
