"""What runs beside a daemon that systemd started from the unit: each source and each child of the daemon works.

`test_unit.py` runs these there; by themselves they have no daemon.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from profd.kernel.capabilities import BPF
from profd.model.formats import FORMATS
from profd.sources.kineto.wire import DAEMON_NAME
from profd.sources.pyspy import tool
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.integration.torch_observer.test_through_daemon import RANGED, calls, check_steps
from tests.support import people
from tests.support.attached import WAIT_SECONDS, Attached, Captures, attached, sources, values, whole
from tests.support.daemon import RunningDaemon
from tests.support.floods import flood, needs_compiler, needs_filter
from tests.support.in_proc import said_of
from tests.support.python_jobs import SPIN
from tests.support.torch_jobs import needs_torch, torch_job
from tests.support.waiting import until

ALICE, ROOT = 5321, 0
BUILD_SECONDS = 600.0
SERVICE = Path("/sys/fs/cgroup/system.slice/profd.service")
TRACE = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}).encode()


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    """The one of the unit, which is nobody's here to stop."""
    found = RunningDaemon(Path("/run/profd"), cast(Any, None))
    yield found
    found._close_channels()


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of Alice's that only she may enter."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as made:
        os.chown(made, ALICE, ALICE)
        yield Path(made)


def main_pid() -> int:
    shown = subprocess.run(["systemctl", "show", "-p", "MainPID", "--value", "profd"], capture_output=True, check=True)
    return int(shown.stdout)


def shown(name: str) -> str:
    return subprocess.run(
        ["systemctl", "show", "-p", name, "--value", "profd"], capture_output=True, text=True, check=True
    ).stdout.strip()


def family() -> list[int]:
    """The daemon and all that it has started."""
    return [int(pid) for procs in SERVICE.rglob("cgroup.procs") for pid in procs.read_text().split()]


def status(pid: int) -> dict[str, str]:
    """Nothing of one that has ended: errands come and go."""
    lines = said_of(pid, "status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def stored(capture: pb.Capture) -> pb.TargetStatus:
    [target] = capture.targets
    assert target.state == pb.STATE_STORED, (target.message, list(target.warnings))
    return target


def test_the_unit_holds_for_the_daemon_and_its_children(daemon: RunningDaemon) -> None:
    unit = (Path(__file__).parents[3] / "deploy" / "systemd" / "profd.service").read_text()
    own = status(main_pid())
    granted = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)[0].split()
    assert int(own["CapBnd"], 16).bit_count() == len(granted)
    found = [of for of in map(status, family()) if of]
    assert len(found) >= 3  # it and two workers
    assert {(of["NoNewPrivs"], of["Seccomp"]) for of in found} == {("1", "2")}
    mounts = Path(f"/proc/{main_pid()}/mountinfo").read_text().splitlines()
    options = {fields[4]: fields[5].split(",")[0] for fields in map(str.split, mounts)}  # the last one is on top
    assert options["/"] == "ro"


def test_what_lies_beside_kinetos_sockets_fills_no_file_system_but_theirs() -> None:
    where = Path("/run/profd/kineto")
    for pid in ("self", str(main_pid())):  # users see what the daemon sees
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        [(options, kind)] = {(fields[5], fields[fields.index("-") + 1]) for fields in mounts if fields[4] == str(where)}
        assert {"rw", "nodev", "nosuid", "noexec"} <= set(options.split(","))
        assert kind == "tmpfs"
    size = os.statvfs(where)
    assert (size.f_blocks * size.f_frsize, size.f_files) == (1 << 20, 8192)
    assert where.stat().st_mode & 0o7777 == 0o1733
    fill = f"open({str(where / 'full')!r}, 'wb').write(bytes(2 << 20))"
    who: dict[str, Any] = {"user": ALICE, "group": ALICE, "extra_groups": []}
    filled = subprocess.run([sys.executable, "-c", fill], capture_output=True, text=True, check=False, **who)
    assert "No space left on device" in filled.stderr
    # AND sockets, which hold no bytes, still have room
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(where / "another"))
    for name in ("full", "another"):
        (where / name).unlink()


def test_an_attached_process(daemon: RunningDaemon, home: Path) -> None:
    with attached(daemon, home, uid=ALICE) as job:
        captures = Captures(daemon)
        capture = captures.recording(job.pid)
        job.counts_on()
        assert whole(values(daemon, stored(captures.stop(capture)).trace))
        job.check_results()


@pytest.mark.parametrize("uid", [ALICE, ROOT])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.skipif(tool.find() is None, reason="py-spy is not installed")
def test_a_sampled_process(daemon: RunningDaemon, uid: int, native: bool) -> None:
    who: dict[str, Any] = {"user": uid, "group": uid, "extra_groups": []}
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True, **who) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n"
            capture = Captures(daemon).record(job.pid, source="pyspy", native=native)
            assert "inner" in " ".join(calls(daemon, stored(capture).trace))
        finally:
            job.kill()


@pytest.mark.skipif(
    not {"memory", "pids"} <= set((SERVICE / "cgroup.controllers").read_text().split() if SERVICE.exists() else ()),
    reason="no limits of memory and tasks here (cgroup v1)",
)
@pytest.mark.parametrize("native", [False, True], ids=["plain", "with a warden"])
def test_children_have_cgroups_with_limits(daemon: RunningDaemon, native: bool) -> None:
    def inside(*parts: str) -> set[int]:
        return {int(pid) for pid in SERVICE.joinpath(*parts, "cgroup.procs").read_text().split()}

    assert main_pid() in inside("daemon")
    assert len(inside("errands")) >= 1
    assert inside() == set()
    who: dict[str, Any] = {"user": ALICE, "group": ALICE, "extra_groups": []}
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True, **who) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == "ready\n"
            captures = Captures(daemon)
            capture = captures.recording(job.pid, source="pyspy", native=native)
            samplers = inside("samplers", str(ALICE))
            assert {status(pid)["Uid"].split()[0] for pid in samplers} == {str(ALICE), *(["0"] if native else [])}
            assert int((SERVICE / "samplers" / str(ALICE) / "memory.max").read_text()) <= 12 << 30
            assert "inner" in " ".join(calls(daemon, stored(captures.stop(capture)).trace))
        finally:
            job.kill()
    done = people.profctl(ROOT, daemon.directory, "doctor")
    assert "samplers" in next(line for line in done.stdout.splitlines() if "cgroups of our children" in line)


@needs_filter
@needs_compiler
def test_a_flood_ends_in_the_kernel(daemon: RunningDaemon) -> None:
    with flood(daemon.kineto_dir / DAEMON_NAME, ALICE):
        until(lambda: dropped(daemon) > 1000, "the kernel drops it")
    assert not int(status(main_pid())["CapPrm"], 16) >> BPF & 1


def dropped(daemon: RunningDaemon) -> int:
    """Datagrams, as the doctor says it."""
    done = people.profctl(ROOT, daemon.directory, "doctor")
    (line,) = (line for line in done.stdout.splitlines() if "kineto floods" in line)
    return int(re.findall(r"(\d+) datagrams so far", line)[0])


@needs_torch
def test_a_traced_process_whose_file_is_picked_up_and_removed(daemon: RunningDaemon, home: Path) -> None:
    with torch_job("train", home, socket_dir=daemon.kineto_dir, uid=ALICE) as job:
        job.trace_dir.chmod(0o700)
        home.chmod(0o700)
        until(lambda: "kineto" in sources(daemon, job.pid), "it has registered")
        target = stored(Captures(daemon).record(job.pid, source="kineto", force=True))
        assert "aten::linear" in calls(daemon, target.trace)
        assert list(job.trace_dir.iterdir()) == []


@needs_torch
@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_an_observer_is_built_and_used(daemon: RunningDaemon, home: Path) -> None:
    environ = {"PROFD_TORCH_DIR": str(home / "none"), "XDG_CACHE_HOME": str(home / "cache")}
    with attached(daemon, home, RANGED, environ=environ, uid=ALICE) as job:
        assert "it is being built" in recorded(daemon, job).message
        until(lambda: not missed(daemon, job), "the estimate misses nothing", BUILD_SECONDS)
        target = recorded(daemon, job, shapes=True, memory=True)
        assert not target.not_honoured, list(target.not_honoured)
        check_steps(calls(daemon, target.trace))
    assert {path.stat().st_uid for path in (home / "cache").rglob("*")} == {ALICE}


def recorded(daemon: RunningDaemon, job: Attached, **options: object) -> pb.TargetStatus:
    captures = Captures(daemon)
    capture = captures.recording(job.pid, **options)
    job.counts_on()
    return stored(captures.stop(capture))


def missed(daemon: RunningDaemon, job: Attached) -> list[str]:
    request = pb.EstimateCaptureRequest(
        selector=pb.Selector(pids=[job.pid]), options=pb.Options(duration_ns=10**9, shapes=True)
    )
    [found] = Captures(daemon).call("EstimateCapture", request).targets
    return list(found.not_honoured)


def test_an_import_its_questions_and_its_exports(daemon: RunningDaemon) -> None:
    stub = daemon.stub(TraceServiceStub)
    chunk = trace_pb2.ImportChunk(filename="t.json", data=TRACE)
    trace = stub.Import(iter([chunk]), metadata=daemon.metadata(), timeout=WAIT_SECONDS).trace.id
    assert calls(daemon, trace) == {"a": 1}
    for form in (name for name, one in FORMATS.items() if one.of_traces):
        request = trace_pb2.ExportRequest(id=trace, format=form)
        assert b"".join(part.data for part in stub.Export(request, metadata=daemon.metadata(), timeout=WAIT_SECONDS))


def test_metrics_on_loopback() -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["METRICS_PORT"]), timeout=WAIT_SECONDS)
    connection.request("GET", "/metrics")
    assert b"profd_build_info" in connection.getresponse().read()
    connection.close()


def test_a_reload_takes_a_right_file_and_refuses_a_wrong_one() -> None:
    file = Path("/etc/profd/profd.toml")
    pid = main_pid()
    try:
        file.write_text('store_bytes = "77MiB"\n')
        done = subprocess.run(["systemctl", "reload", "profd"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        until(lambda: "reloaded: store_bytes" in shown("StatusText"), "systemd is told")
        file.write_text("wrokers = 3\n")
        done = subprocess.run(["systemctl", "reload", "profd"], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert (shown("ActiveState"), main_pid()) == ("active", pid)
    finally:
        file.unlink()
        subprocess.run(["systemctl", "reload", "profd"], check=True)


def test_captures_are_switched_off_and_on(daemon: RunningDaemon) -> None:
    for verb in ("disable", "enable"):
        done = people.profctl(ROOT, daemon.directory, verb)
        assert done.returncode == 0, done.stderr
        assert Path("/etc/profd/disabled").exists() == (verb == "disable")
