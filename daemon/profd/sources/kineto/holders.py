"""The processes that have a Unix socket's name, or keep a directory's lock: asked only when we could not take it
ourselves.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Final

from profd.targets import procfs

_TABLE_BYTES: Final = 16 << 20


def holder(name: str) -> str:
    """A phrase naming the process, e.g. `pid 812 (dynolog)`; `@` stands for NUL in `name`."""
    inode = _inode(name)
    if inode is None:
        return "an unknown process"
    link = f"socket:[{inode}]"
    found = [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if _has(pid, link)]
    if not found:
        return "a process that we may not look into"
    pid = min(found, key=_began)  # not a child of it, which has its descriptors for a moment
    command = procfs.read(Path("/proc", pid, "comm"), 64) or b""
    return f"pid {pid} ({procfs.printable(command.strip(), 32)})"


def keeper(directory: Path) -> str:
    """A phrase naming the process that has a file of this directory open, empty where none is seen.

    Only of a file that somebody writes can the lock be kept for long, and whoever removes it keeps the directory's.
    """
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        opened = procfs.links(f"/proc/{pid}/fd", procfs.DESCRIPTORS_LISTED)
        if int(pid) != os.getpid() and any(target.startswith(f"{directory}/") for _, target in opened):
            with contextlib.suppress(OSError):
                return f"pid {pid} of uid {procfs.files_of(int(pid))} has a file open there"
    return ""


def _inode(name: str) -> int | None:
    table = procfs.read(Path("/proc/net/unix"), _TABLE_BYTES) or b""
    for line in table.splitlines():
        # Num RefCount Protocol Flags Type St Inode Path
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7] == os.fsencode(name) and fields[6].isdigit():
            return int(fields[6])
    return None


def _began(pid: str) -> float:
    stat = procfs.stat_of(int(pid))
    return math.inf if stat is None else stat.start_ticks


def _has(pid: str, link: str) -> bool:
    return any(target == link for _, target in procfs.links(f"/proc/{pid}/fd", procfs.DESCRIPTORS_LISTED))
