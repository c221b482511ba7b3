"""Processes of a daemon by what they are, and how one is killed without ever hitting another."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Final

ROLES: Final = {
    "worker": b"profd.workers.process",
    "streamer": b"profd.attached.ingest.streamer",
    "sampler": b"py-spy",
    "porter": b"profd-porter",
    "dropper": b"profd-dropper",
    "errand": b"profd.targets.errands.server",
}


def children() -> dict[int, list[int]]:
    """Of every process."""
    found: dict[int, list[int]] = defaultdict(list)
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(fields[1])].append(int(pid))
    return found


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    tree, found = children(), list[int]()
    waiting = [pid]
    while waiting:
        for child in tree.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child)
    return found


def command(pid: int) -> bytes:
    """Its command line; empty for one that has ended."""
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return b""


def role(pid: int) -> str:
    """What a process of the daemon is; empty where that is none of `ROLES`."""
    said = command(pid)
    return next((name for name, word in ROLES.items() if word in said), "")


def having(daemon: int, wanted: str) -> list[int]:
    """Pids of the daemon's processes of this role."""
    return [pid for pid in below(daemon) if role(pid) == wanted]


def killed(pid: int, wanted: str) -> bool:
    """Whether it was there, what it should be, and is killed."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if role(pid) != wanted:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
