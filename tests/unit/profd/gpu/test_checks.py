"""What the doctor says of GPUs, on a made-up /proc."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from profd.gpu.checks import GpuChecks
from profd.gpu.holders import foreign
from profd.gpu.leases import Lease, Leases, Stage
from profd.gpu.readings import Gpu
from profd.targets.process import ProcessId

CUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65"


def process(proc: Path, pid: int, *libraries: str, comm: str = "python") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{comm}\n")
    (folder / "maps").write_text("".join(f"7f0000000000-7f0000001000 r-xp 0 08:01 1   {path}\n" for path in libraries))


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    process(folder, 1, "/usr/lib/libc.so.6", comm="init")
    return folder


def made(proc: Path, *libraries: str) -> GpuChecks:
    return GpuChecks(proc, libraries)


def test_nothing_uses_cuda(proc: Path) -> None:
    assert made(proc).cupti() == ("ok", "no process uses CUDA", "")


def test_a_process_with_its_cupti(proc: Path) -> None:
    process(proc, 12, CUDA, "/venv/nvidia/cuda_cupti/lib/libcupti.so.12")
    assert made(proc).cupti().verdict == "ok"


@pytest.mark.parametrize(
    ("libraries", "verdict", "detail", "fix"),
    [
        ([CUDA], "warning", "pid 12 have no libcupti loaded", "pip install nvidia-cuda-cupti"),
        ([CUDA, "/x/libcupti.so.11.8"], "problem", "pid 12 has loaded libcupti.so.11.8, which is older", "cu12"),
        (
            [CUDA, "/opt/nvidia/nsys/libToolsInjection64.so"],
            "warning",
            "pid 12 runs under Nsight Systems",
            "start it without Nsight Systems",
        ),
        ([CUDA, "/a/libcupti.so.12", "/b/libcupti.so.13"], "warning", "two libraries of CUPTI", "LD_LIBRARY_PATH"),
    ],
)
def test_what_stands_in_the_way(proc: Path, libraries: list[str], verdict: str, detail: str, fix: str) -> None:
    process(proc, 12, *libraries)
    check = made(proc).cupti()
    assert check.verdict == verdict
    assert detail in check.detail
    assert fix in check.fix


def test_a_toolkit_of_the_host_will_do(proc: Path, tmp_path: Path) -> None:
    (tmp_path / "libcupti.so").touch()
    process(proc, 12, CUDA)
    assert made(proc, str(tmp_path / "libcupti.so")).cupti().verdict == "ok"


def test_a_tool_that_was_met(proc: Path) -> None:
    process(proc, 12, CUDA, "/v/libcupti.so.13")
    holders = {ProcessId(12, 1): foreign("CUPTI for DCGM"), ProcessId(99, 1): foreign("gone")}
    check = replace(made(proc), holders=lambda: holders).cupti()
    assert check.detail == "CUPTI in pid 12 was held by “CUPTI for DCGM” last time"
    assert "dcgmi profile --pause" in check.fix


def test_counters(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(proc).counters([]) == ("ok", "no NVIDIA driver", "")
    params = proc / "driver" / "nvidia" / "params"
    params.parent.mkdir(parents=True)
    params.write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr("profd.gpu.checks.os.geteuid", lambda: 1000)
    assert "only administrators" in made(proc).counters([]).detail
    params.write_text("RmProfilingAdminOnly: 0\n")
    assert made(proc).counters([Gpu(0, "GPU-1", "NVIDIA H100")]).verdict == "ok"
    for gpu in (Gpu(0, "MIG-1", "NVIDIA H100 MIG 1g.10gb"), Gpu(0, "GPU-1", "GRID A100-8C")):
        assert "a MIG slice or a virtual GPU" in made(proc).counters([gpu]).detail
    process(proc, 77, comm="nv-hostengine")
    assert "DCGM runs (pid 77)" in made(proc).counters([]).detail


def test_leases_that_are_not_free() -> None:
    leases = Leases(lambda: 0.0)
    lease = leases.grant(ProcessId(4711, 1), foreign("x"))
    assert GpuChecks(leases=lambda: [lease]).held() == ("ok", "1 in use", "")
    leases.arm(lease)
    leases.end(lease)
    assert lease.stage is Stage.ENDING
    check = GpuChecks(leases=lambda: [Lease(lease.subject, lease.holder, 1, 0.0, Stage.ENDING)]).held()
    assert check.verdict == "warning"
    assert "has not said that it is disarmed" in check.detail
