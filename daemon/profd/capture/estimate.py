"""Whether a target and this host can bear what a capture would cost them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.capture.model import Options
from profd.limits import DISK_FREE_SHARE_MIN, MiB
from profd.sources.base import Plan
from profd.targets import procfs
from profd.targets.process import ProcessId

ESTIMATE_WINDOW_NS: Final = 2_000_000_000
"""Windows up to this long are not refused for their estimate."""

MEMORY_SHARE: Final = 0.8
"""Share of the available memory a capture may take: the estimate is one, and the job grows too."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """Bytes there are. None: not known."""

    memory_bytes: int | None
    disk_bytes: int | None  # beyond what must stay free


class HostHeadroom:
    """Reads headroom from /proc, the target's cgroup and the filesystem of the state directory."""

    def __init__(self, state_dir: Path, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> None:
        self._state_dir = state_dir
        self._proc = proc
        self._cgroups = cgroups

    def of(self, process: ProcessId) -> Headroom:
        """What is left for this process now."""
        known = [n for n in (self._host_memory(), self._cgroup_memory(process.pid)) if n is not None]
        return Headroom(memory_bytes=min(known, default=None), disk_bytes=self.disk())

    def disk(self) -> int | None:
        """Bytes that may be written before the reserve is touched; negative below it."""
        try:
            info = os.statvfs(self._state_dir)
        except OSError:
            return None
        reserve = int(info.f_blocks * info.f_frsize * DISK_FREE_SHARE_MIN)
        return info.f_bavail * info.f_frsize - reserve

    def _host_memory(self) -> int | None:
        for line in _text(self._proc / "meminfo").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
        return None

    def _cgroup_memory(self, pid: int) -> int | None:
        """The tightest `memory.max - memory.current` from the process's cgroup (v2) up to the root."""
        path = ""
        for line in _text(self._proc / str(pid) / "cgroup").splitlines():
            if line.startswith("0::"):
                path = line[3:].strip("/")
        left: int | None = None
        group = self._cgroups / path
        # A path with ".." is one seen from another cgroup namespace: not ours to follow.
        while ".." not in group.parts and group.is_relative_to(self._cgroups):
            limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
            if limit.isdecimal() and used.isdecimal():
                room = max(0, int(limit) - int(used))
                left = room if left is None else min(left, room)
            group = group.parent
        return left


def over_limit(plan: Plan, options: Options, find_headroom: Callable[[], Headroom]) -> str:
    """Why the plan must not be carried out without --force; empty if it may.

    `find_headroom` reads a handful of files: it is asked where the answer can depend on it.
    """
    if options.force or not _is_long(options):
        return ""
    headroom = find_headroom()
    memory = headroom.memory_bytes
    if plan.memory_bytes is not None and memory is not None and plan.memory_bytes > memory * MEMORY_SHARE:
        return (
            f"it would take about {_mib(plan.memory_bytes)} of memory in the target and {_mib(memory)} are "
            "available; ask for a shorter window, or use --force"
        )
    disk = headroom.disk_bytes
    if plan.trace_bytes is not None and disk is not None and plan.trace_bytes > disk:
        return (
            f"it would write about {_mib(plan.trace_bytes)} and {_mib(max(0, disk))} may be written; "
            "ask for a shorter window, free disk space (`profctl rm`), or use --force"
        )
    return ""


def _is_long(options: Options) -> bool:
    """Iterations have no known length, so they count as long."""
    return options.duration_ns > ESTIMATE_WINDOW_NS or options.duration_ns == 0


def _mib(size: int) -> str:
    return f"{size / MiB:.0f} MiB"


def _text(path: Path) -> str:
    return (procfs.read(path, procfs.STATUS_BYTES) or b"").decode(errors="replace")
