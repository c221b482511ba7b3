"""What a daemon holds at a moment: memory, descriptors, threads, processes, files."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from soak import victims

UNITS: Final = {
    "daemon_pss": ("memory of the daemon (PSS)", "KiB"),
    "daemon_own": ("of that, what no file has", "KiB"),
    "workers_pss": ("memory of its workers (PSS)", "KiB"),
    "descriptors": ("its descriptors", ""),
    "threads": ("its threads", ""),
    "processes": ("processes below it", ""),
    "files": ("files in its state directory", ""),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """One look. Memory is in KiB."""

    captures: int
    questions: int
    daemon_pss: int
    daemon_own: int  # PSS of files changes with who else has them mapped
    workers_pss: int
    descriptors: int
    threads: int
    processes: int
    files: int


def usage(daemon: int, state: Path, captures: int, questions: int) -> Usage:
    """Of a daemon and all that belongs to it."""
    below = victims.below(daemon)
    workers = [pid for pid in below if victims.role(pid) == "worker"]
    return Usage(
        captures,
        questions,
        _pss(daemon),
        _pss(daemon, "Pss_Anon"),
        sum(_pss(pid) for pid in workers),
        len(os.listdir(f"/proc/{daemon}/fd")),
        len(os.listdir(f"/proc/{daemon}/task")),
        len(below),
        sum(len(files) for _, _, files in os.walk(state)),
    )


def _pss(pid: int, row: str = "Pss") -> int:
    """Its memory, what it shares divided among the sharers; 0 once it has ended. `row`: of smaps_rollup."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{row}:"):
                return int(line.split()[1])
    return 0
