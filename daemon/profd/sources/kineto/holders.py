"""Who holds a Unix socket's name: asked only when we could not take it ourselves."""

from __future__ import annotations

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
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        if _has(pid, link):
            command = procfs.read(Path("/proc", pid, "comm"), 64) or b""
            return f"pid {pid} ({procfs.printable(command.strip(), 32)})"
    return "a process that we may not look into"


def _inode(name: str) -> int | None:
    table = procfs.read(Path("/proc/net/unix"), _TABLE_BYTES) or b""
    for line in table.splitlines():
        # Num RefCount Protocol Flags Type St Inode Path
        fields = line.split(None, 7)
        if len(fields) == 8 and fields[7] == os.fsencode(name) and fields[6].isdigit():
            return int(fields[6])
    return None


def _has(pid: str, link: str) -> bool:
    return any(target == link for _, target in procfs.links(f"/proc/{pid}/fd", procfs.DESCRIPTORS_LISTED))
