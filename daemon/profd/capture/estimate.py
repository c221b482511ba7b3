"""Whether a target and this host can bear what a capture would cost them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.disk.space import Space
from profd.errors import Exhausted
from profd.limits import MiB
from profd.model.capture import Options
from profd.sources.base import Plan
from profd.targets.memory import MemoryLimits
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
    """Reads headroom from /proc, the target's cgroups and the filesystem of the state directory."""

    def __init__(self, state_dir: Path, memory: MemoryLimits | None = None, space: Space | None = None) -> None:
        self._space = space or Space(state_dir)
        self._memory = memory or MemoryLimits()

    async def ahead(self, uid: int, processes: Sequence[ProcessId]) -> AbstractContextManager[None]:
        """Look at the memory of these for a user; within the block `of`, and whoever shares the Memory, says what was
        seen. Nothing may be awaited in it.
        """
        return await self._memory.ahead(uid, [process.pid for process in processes], len(processes))

    def of(self, process: ProcessId) -> Headroom:
        """The room that is left for this process now."""
        return Headroom(memory_bytes=self._memory.left(process.pid), disk_bytes=self.disk())

    def disk(self) -> int | None:
        """Bytes that may be written before the reserve is touched, less what is promised; negative below it."""
        try:
            return self._space.left()
        except Exhausted:
            return None


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
