"""The checks of `profctl doctor`, on a made-up /proc."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from profd._host import SenderFilter
from profd.gpu.nvml import Nvml
from profd.host import config, doctor
from profd.host.doctor import Examiner, Finding
from profd.kernel import nobody
from profd.kernel.identity import SAME, WorkerIdentity
from profd.sources.kineto.senders import Senders
from profd.trust.audit import AuditLog

from tests.support.floods import needs_filter


@pytest.fixture
def examiner(tmp_path: Path) -> Examiner:
    proc = tmp_path / "proc"
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").touch()
    (proc / "self" / "status").write_text("CapEff:\t0000000000000000\n")
    (proc / "sys/kernel/yama").mkdir(parents=True)
    (proc / "4711").mkdir()
    state = tmp_path / "state"
    state.mkdir()
    flags = {"state_dir": str(state), "socket": str(tmp_path / "s"), "metrics": "off"}
    audit = AuditLog(state / "audit.jsonl")
    audit.close()
    return Examiner(config.load(flags, {}, user=True), SAME, audit, Nvml(), proc)


def found(examiner: Examiner) -> dict[str, Finding]:
    return {finding.name: finding for finding in examiner.findings()}


def test_every_finding_says_what_to_do(examiner: Examiner) -> None:
    for finding in examiner.findings():
        assert finding.verdict in ("ok", "warning", "problem")
        assert bool(finding.fix) == (finding.verdict != "ok")


@pytest.mark.parametrize(
    ("scope", "capable", "verdict"),
    [("0", False, "ok"), ("1", False, "warning"), ("1", True, "ok"), ("3", True, "warning"), (None, False, "ok")],
)
def test_ptrace(examiner: Examiner, scope: str | None, capable: bool, verdict: str) -> None:
    if scope is not None:
        (examiner.proc / "sys/kernel/yama/ptrace_scope").write_text(f"{scope}\n")
    if capable:
        (examiner.proc / "self/status").write_text("CapEff:\t0000000000080000\n")
    assert found(examiner)["ptrace"].verdict == verdict


def test_container(examiner: Examiner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up namespace is not the host's."""
    rooted = replace(examiner, config=replace(examiner.config, user=False))
    assert found(rooted)["processes"].verdict == "warning"
    monkeypatch.setattr(doctor, "_HOST_PID_NAMESPACE", (examiner.proc / "self/ns/pid").stat().st_ino)
    assert found(rooted)["processes"].verdict == "ok"


@pytest.mark.parametrize(("parent", "verdict"), [(1, "warning"), (os.getpid(), "ok")], ids=["others", "ours"])
def test_a_uid_that_is_to_be_nobodys_is_somebodys(examiner: Examiner, parent: int, verdict: str) -> None:
    rooted = replace(examiner, config=replace(examiner.config, user=False))
    assert found(rooted)["uids of our children"].verdict == "ok"
    for pid, above, uid in ((os.getpid(), 1, 0), (4711, parent, nobody.PORTERS)):
        (examiner.proc / str(pid)).mkdir(exist_ok=True)
        (examiner.proc / str(pid) / "status").write_text(f"PPid:\t{above}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    assert found(rooted)["uids of our children"].verdict == verdict


def test_floods(examiner: Examiner) -> None:
    rooted = replace(examiner, config=replace(examiner.config, user=False))
    refused = Senders(why_not="the daemon has no CAP_BPF")
    for one, senders, verdict, said in (
        (rooted, Senders(), "ok", "[kineto] sender_filter"),
        (rooted, refused, "warning", "no CAP_BPF"),
        (examiner, refused, "ok", "no CAP_BPF"),
    ):
        finding = found(replace(one, senders=senders))["kineto floods"]
        assert (finding.verdict, said in finding.detail) == (verdict, True)
    assert "--cap-add=BPF" in found(replace(rooted, senders=refused))["kineto floods"].fix


@needs_filter
@pytest.mark.parametrize(("by_user", "whose"), [(True, "a process or a user"), (False, "a process (before Linux 6.16")])
def test_floods_that_the_kernel_drops(examiner: Examiner, by_user: bool, whose: str) -> None:
    made = SenderFilter(of_process=1, of_user=1, remembered=16, by_user=by_user)
    finding = found(replace(examiner, senders=Senders(made, by_user)))["kineto floods"]
    assert finding.verdict == "ok"
    assert finding.detail.startswith(f"the kernel drops what {whose}")
    assert finding.detail.endswith("0 datagrams so far")


def test_a_socket_directory_that_others_list(examiner: Examiner) -> None:
    folder = examiner.config.socket.parent
    rooted = replace(examiner, config=replace(examiner.config, user=False))
    for mode, verdict in ((0o711, "ok"), (0o755, "warning"), (0o777, "warning")):
        folder.chmod(mode)
        assert found(rooted)["socket directory"].verdict == verdict
        assert found(examiner)["socket directory"].verdict == "ok"
    assert found(rooted)["socket directory"].fix.startswith(f"chmod 733 {folder}")


@pytest.mark.parametrize("mode", [0o755, 0o1777], ids=oct)
def test_one_directory_of_all_sockets_is_judged_once(examiner: Examiner, mode: int) -> None:
    folder = examiner.config.socket.parent
    rooted = replace(examiner, config=replace(examiner.config, user=False, kineto_socket_dir=folder))
    folder.chmod(mode)
    assert [one.name for one in rooted.findings() if f"has mode {mode:o}" in one.detail] == ["kineto sockets"]
    kept = replace(rooted, out_of_reach=lambda: "somebody keeps it: pid 7 of uid 8")
    assert found(kept)["socket directory"].verdict == "warning"


def test_kineto_directory_whose_lock_somebody_keeps(examiner: Examiner) -> None:
    kept = replace(examiner, out_of_reach=lambda: "somebody keeps it: pid 7 of uid 8")
    finding = found(kept)["kineto sockets"]
    assert (finding.verdict, finding.detail) == ("problem", "somebody keeps it: pid 7 of uid 8")
    assert finding.fix


def test_kineto_directory(examiner: Examiner) -> None:
    path = examiner.config.kineto_socket_dir
    assert found(examiner)["kineto sockets"].verdict == "warning"
    path.mkdir()
    path.chmod(0o1733)
    assert found(examiner)["kineto sockets"].verdict == "ok"
    # For all users it is everybody's, and what lies there is on the file system of the folder above it.
    rooted = replace(examiner, config=replace(examiner.config, user=False))
    assert "mount a small tmpfs" in found(rooted)["kineto sockets"].fix
    elsewhere = replace(rooted, config=replace(rooted.config, kineto_socket_dir=Path("/dev/shm")))
    assert "mode=1733" in found(elsewhere)["kineto sockets"].fix
    path.chmod(0o500)
    assert found(examiner)["kineto sockets"].fix.startswith("chmod")


def test_workers(examiner: Examiner) -> None:
    rooted = replace(examiner, config=replace(examiner.config, user=False))
    assert (
        "profd-worker" in found(replace(rooted, identity=WorkerIdentity(4321, 4321, "profd-worker")))["workers"].detail
    )


def test_full_disk(examiner: Examiner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_FREE_SHARE_MIN", 1.1)
    assert found(examiner)["disk"].verdict == "problem"


def test_check_that_cannot_be_made_is_told(examiner: Examiner) -> None:
    gone = replace(examiner, config=replace(examiner.config, state_dir=Path("/nonexistent")))
    assert "cannot be checked" in found(gone)["disk"].detail
    assert found(gone)["clock"].name == "clock"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_store_that_cannot_be_written(examiner: Examiner) -> None:
    examiner.config.state_dir.chmod(0o500)
    assert found(examiner)["store"].verdict == "problem"


def test_agent_socket(examiner: Examiner) -> None:
    path = examiner.config.agents
    assert "restart" in found(examiner)["agent socket"].fix
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        assert found(examiner)["agent socket"].verdict == "ok"
    path.unlink()
    path.touch()
    assert found(examiner)["agent socket"].verdict == "problem"
