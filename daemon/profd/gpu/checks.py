"""Obstacles that could keep CUDA's work out of a capture: looked for before one is asked for. Reads only; blocking."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from profd.gpu.holders import Holder
from profd.gpu.leases import Lease, Stage
from profd.gpu.readings import Gpu
from profd.limits import GPU_CHECK_PROCESSES_MAX
from profd.targets import procfs
from profd.targets.process import ProcessId

_MAPS_BYTES: Final = 8 << 20
_LIBRARIES: Final = re.compile(rb"(/[^\n]*/([^/\n]+\.so[^/\n]*))$", re.MULTILINE)
_CUPTI_MAJOR: Final = re.compile(r"libcupti.*\.so\.(\d+)")
_OLDEST_CUPTI: Final = 12  # CUDA's major; files of toolkits are numbered by year, and say nothing
_TOOLS: Final = {
    "libtoolsinjection": "Nsight Systems",
    "libinterceptorinjection": "Nsight Compute",
    "libcuinj": "nvprof",
    "libsanitizer-": "Compute Sanitizer",
}
_CUPTI_PATHS: Final = ("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", "/usr/local/cuda/lib64/libcupti.so")
_VIRTUAL: Final = re.compile(r"\bv?GRID\b|vGPU|-\d+[ABCQ]\b")


class Check(NamedTuple):
    """As doctor's Finding has it: ok, warning or problem; `fix` is empty when ok."""

    verdict: str
    detail: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class GpuChecks:
    """Checks of one daemon. `holders` and `leases` are its keeper's."""

    proc: Path = Path("/proc")
    libraries: Sequence[str] = _CUPTI_PATHS
    holders: Callable[[], Mapping[ProcessId, Holder]] = field(default=dict)
    leases: Callable[[], Sequence[Lease]] = field(default=tuple)

    def cupti(self) -> Check:
        """Whether each process that uses CUDA can be recorded through CUPTI."""
        found = {pid: libraries for pid, libraries in self._libraries() if _uses_cuda(libraries)}
        for pid, libraries in found.items():
            problem = _problem(pid, libraries)
            if problem is not None:
                return problem
        for process, holder in self.holders().items():
            if process.pid in found:
                return Check("warning", f"CUPTI in pid {process.pid} was held by {holder} last time", holder.fix)
        if not found:
            return Check("ok", "no process uses CUDA")
        without = [pid for pid, libraries in found.items() if not _cupti(libraries)]
        if without and not any(os.path.exists(path) for path in self.libraries):
            return Check(
                "warning",
                f"{_pids(without)} have no libcupti loaded, and there is none of a CUDA toolkit",
                "pip install nvidia-cuda-cupti there, or put CUDA's extras/CUPTI/lib64 on LD_LIBRARY_PATH",
            )
        users = "1 process uses CUDA" if len(found) == 1 else f"{len(found)} processes use CUDA"
        return Check("ok", f"{users}, nothing stands in the way that can be seen from outside")

    def counters(self, gpus: Sequence[Gpu]) -> Check:
        """The users who may read hardware counters (PM sampling); tracing kernels needs none of them."""
        parameters = procfs.read(self.proc / "driver/nvidia/params", 1 << 16)
        if parameters is None:
            return Check("ok", "no NVIDIA driver")
        limited = [gpu for gpu in gpus if _VIRTUAL.search(gpu.name) or gpu.uuid.startswith("MIG-")]
        if limited:
            which = ", ".join(f"GPU {gpu.index} ({gpu.name})" for gpu in limited)
            return Check(
                "warning",
                f"{which}: a MIG slice or a virtual GPU has no device-wide counters, and may forbid tracing",
                "use a whole GPU for them, or let the host's administrator allow profiling",
            )
        if engine := self._named(b"nv-hostengine"):
            return Check(
                "warning",
                f"DCGM runs (pid {engine}): while it reads profiling fields, PM sampling is refused",
                "dcgmi profile --pause before, dcgmi profile --resume after",
            )
        if b"RmProfilingAdminOnly: 1" in parameters and os.geteuid() != 0:
            return Check(
                "warning",
                "only administrators may read hardware counters, and this profd is none: no PM sampling",
                "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run profd as root",
            )
        return Check("ok", "hardware counters may be read")

    def held(self) -> Check:
        """Leases that nobody uses any more and that are not free."""
        stuck = [lease for lease in self.leases() if lease.stage is not Stage.HELD]
        if stuck:
            return Check("warning", stuck[0].sentence(), "continue it (kill -CONT), or end it: then it is free")
        return Check("ok", f"{len(self.leases())} in use")

    def _libraries(self) -> Iterator[tuple[int, set[str]]]:
        pids = sorted((int(name) for name in os.listdir(self.proc) if name.isdigit()), reverse=True)
        for pid in pids[:GPU_CHECK_PROCESSES_MAX]:
            raw = procfs.read(self.proc / str(pid) / "maps", _MAPS_BYTES) or b""
            yield pid, {name.decode("utf-8", "replace") for _, name in _LIBRARIES.findall(raw)}

    def _named(self, command: bytes) -> int:
        for name in os.listdir(self.proc):
            # The kernel keeps 15 bytes of it.
            if name.isdigit() and (procfs.read(self.proc / name / "comm", 64) or b"").strip() == command[:15]:
                return int(name)
        return 0


def _uses_cuda(libraries: set[str]) -> bool:
    return any(name.startswith("libcuda.so") for name in libraries)


def _cupti(libraries: set[str]) -> list[str]:
    return sorted(name for name in libraries if name.startswith("libcupti"))


def _problem(pid: int, libraries: set[str]) -> Check | None:
    for name in sorted(libraries):
        tool = next((tool for begin, tool in _TOOLS.items() if name.lower().startswith(begin)), None)
        if tool is not None:
            return Check(
                "warning",
                f"pid {pid} runs under {tool} ({name}), which has its CUPTI",
                f"start it without {tool}, or take its GPU work from there",
            )
    known = _cupti(libraries)
    for name in known:
        major = _CUPTI_MAJOR.match(name)
        if major is not None and int(major[1]) < _OLDEST_CUPTI:
            return Check(
                "problem",
                f"pid {pid} has loaded {name}, which is older than CUDA 12.1",
                "install nvidia-cuda-cupti-cu12 (or a newer framework) in its environment",
            )
    if len(known) > 1:
        return Check(
            "warning",
            f"pid {pid} has two libraries of CUPTI ({', '.join(known)}), which disturb each other",
            "see to it that only one is found: LD_LIBRARY_PATH, LD_PRELOAD",
        )
    return None


def _pids(pids: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(pids)[:8]))
    return f"pid {listed}" + (", ..." if len(pids) > 8 else "")
