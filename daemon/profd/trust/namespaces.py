"""Pids as the caller sees them -> pids of the host; and which container a process is of.

A caller in a container names processes by the pids of its own namespace.
A descriptor of a process tells its pid at every level (kernel/pidfd.py), /proc/PID/ns/pid
which namespace its innermost level is; ioctl NS_GET_PARENT leads upwards.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from profd.errors import Denied, NotFound
from profd.kernel.pidfd import pids_of
from profd.targets import procfs
from profd.trust.caller import Caller

_NS_GET_PARENT: Final = 0xB702
_DEPTH_MAX: Final = 32  # the kernel's own bound on nested pid namespaces
_PROC: Final = Path("/proc")

UNREADABLE: Final = -1  # all such processes of a uid are one container

Namespace = tuple[int, int]  # device and inode of a namespace file


def shares_pids(pid: int) -> bool:
    """Whether a process sees the pids that we see: for as long as it lives, since nobody leaves his pid namespace."""
    try:
        # One level: that of /proc, which is ours. Its `ns/pid` would say the same, and waits where the process execs.
        return pid > 0 and len(_levels(pid)) == 1 == len(_levels(os.getpid()))
    except OSError:
        return False


def translate_pids(caller: Caller, pids: Sequence[int]) -> list[int]:
    """Host pids, in the order given. Raises NotFound naming what does not exist there.

    Raises Denied when the caller's namespace cannot be read (it is invisible
    to us, or we have no right to look): guessing might name another process.
    """
    if not pids:
        return []
    try:
        theirs = _namespace(_PROC / str(caller.pid)) if caller.pid else None
        ours = _namespace(_PROC / "self")
    except OSError:
        theirs = None
    if theirs is None:
        raise Denied(
            f"the pid namespace of the caller (pid {caller.pid}) cannot be read, so the pids it names "
            "cannot be told apart from others; run profctl on the host"
        )
    if theirs == ours:
        return list(pids)
    known = _pids_in(theirs, len(_levels(caller.pid)) - 1, set(pids))
    missing = [str(pid) for pid in pids if pid not in known]
    if missing:
        raise NotFound(
            f"pid {', '.join(missing)} does not exist in your pid namespace; `profctl ps` lists host pids, "
            "and --pid takes the ones you see in /proc"
        )
    return [known[pid] for pid in pids]


def of_container(pid: int, inode: int) -> bool:
    """Whether a process is in this one, of `container`."""
    try:
        return container(pid) == inode
    except OSError:
        return False


def container(pid: int) -> int:
    """The container of a process, among those that share its uid: the pid namespace right below ours that it is in.

    0: it sees our pids; UNREADABLE: we may not look. Whatever namespaces are made in a container lie below its own, and
    nobody leaves theirs (docs/decisions/0036-containers.md). Raises OSError for one that has ended, or does not answer.
    """
    below = len(_levels(pid)) - len(_levels(os.getpid()))
    if below <= 0:
        return 0
    try:
        return _ancestor(pid, below - 1)[1]
    except PermissionError:
        return UNREADABLE


def _pids_in(namespace: Namespace, level: int, wanted: set[int]) -> dict[int, int]:
    """Pid in the namespace -> host pid, for the wanted ones that are in it or below it."""
    found = {}
    for pid in map(int, filter(str.isdecimal, os.listdir(_PROC))):
        try:
            levels = _levels(pid)
            if len(levels) <= level or levels[level] not in wanted:
                continue
            if _ancestor(pid, len(levels) - 1 - level) == namespace:
                found[levels[level]] = pid
        except (OSError, ValueError):
            continue  # it ended, or is not ours to look at
    return found


def _levels(pid: int) -> list[int]:
    """The pids of a process, outermost first. Raises OSError."""
    return pids_of(pid) or list(_told(pid))


def _told(pid: int) -> tuple[int, ...]:
    """The same by its status, on a kernel where descriptors do not tell. Raises OSError."""
    status = procfs.status_of(pid)
    if status is None:
        raise ProcessLookupError(errno.ESRCH, "the process has ended, or does not answer")
    return status.namespace_pids


def _namespace(process: Path) -> Namespace:
    fd = procfs.opened(process / "ns" / "pid", os.O_RDONLY)
    try:
        found = os.fstat(fd)
        return found.st_dev, found.st_ino
    finally:
        os.close(fd)


def _ancestor(pid: int, generations: int) -> Namespace:
    """The namespace that many levels above the process's innermost one."""
    if generations > _DEPTH_MAX:
        raise ValueError("deeper than the kernel allows")
    fd = procfs.opened(_PROC / str(pid) / "ns" / "pid", os.O_RDONLY)
    try:
        for _ in range(generations):
            parent = fcntl.ioctl(fd, _NS_GET_PARENT)
            os.close(fd)
            fd = parent
        found = os.fstat(fd)
        return found.st_dev, found.st_ino
    finally:
        os.close(fd)
