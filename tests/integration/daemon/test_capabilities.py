"""A daemon of the whole host with fewer capabilities, as a container gives them: what is lost, and the fix."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from profd.kernel.privileges import PRIVILEGES
from profd.sources.pyspy import tool
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import host_pb2, host_pb2_grpc

from tests.support.attached import Captures, attached
from tests.support.daemon import running_daemon

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a daemon of the whole host takes root"),
]

OPTIONAL = [privilege.name for privilege in PRIVILEGES if not privilege.needed]


def without(*lacking: str) -> tuple[str, str]:
    """What Python runs: a daemon that holds all of them but these."""
    kept = sum(1 << privilege.number for privilege in PRIVILEGES if privilege.name not in lacking)
    give_up = f"from profd.kernel import capabilities as c; c.bound({kept}); c.hold({kept}, {kept})"
    return "-c", f"import sys; {give_up}; from profd import main; sys.exit(main.main())"


def test_without_those_it_can_miss_it_records_and_the_doctor_names_them(tmp_path: Path) -> None:
    with running_daemon(user=False, program=without(*OPTIONAL)) as daemon:
        stub = daemon.stub(host_pb2_grpc.HostServiceStub)
        checks = stub.GetHostStatus(host_pb2.GetHostStatusRequest(), metadata=daemon.metadata(), timeout=60).checks
        [found] = [check for check in checks if check.name == "capabilities"]
        assert found.verdict == "warning"
        for name in OPTIONAL:
            assert f"no {name}: " in found.detail
            assert f"--cap-add={name.removeprefix('CAP_')}" in found.fix
        with attached(daemon, tmp_path) as job:
            [target] = Captures(daemon).record(job.pid, source="sdk").targets
            assert target.state == pb.STATE_STORED, target.message


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
