"""Cgroups of the daemon's own for children that its users may make large: samplers, builds, errands.

A user may write the `oom_score_adj` of a child with their uid, and may keep a child waiting beyond SIGKILL. Where the
service has a cgroup (v2) to itself (`Delegate=` of the unit), each kind of child has one below it with limits of
memory and tasks, and each user one below that. So they use up neither what the daemon needs nor each other's:

    profd.service/          MemoryMax=, TasksMax= of the unit
      daemon/               the daemon, workers, streamers, porters, droppers
      samplers/<uid>/       with their wardens
      builds/<uid>/         compilers of observers
      errands/

Elsewhere children share the daemon's cgroup, and `why_not` says why.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

from profd import limits
from profd.kernel.mounts import mounts
from profd.limits import CHILD_GROUP_IDLE_SECONDS, CHILD_GROUPS_MAX, GiB

OWN: Final = "daemon"
_CONTROLLERS: Final = ("memory", "pids")
_ENABLED: Final = " ".join(f"+{name}" for name in _CONTROLLERS)
_MARK: Final = "user.delegate"  # that systemd puts on a cgroup which it leaves to a service


class ChildKind(Enum):
    """Children with limits of their own; the values are names of directories."""

    SAMPLERS = "samplers"
    BUILDS = "builds"
    ERRANDS = "errands"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of all children of a kind, and of one user's; errands, which look at files of all, have no groups of users."""

    memory: int  # bytes
    tasks: int
    user_memory: int = 0
    user_tasks: int = 0


def bounds(memory: int) -> dict[ChildKind, Bounds]:
    """By what the service may have in all, in bytes: three tenths of it at least are left to the daemon."""
    builds = min(limits.OBSERVER_BUILDS_AT_ONCE * limits.OBSERVER_MEMORY_BYTES_MIN, memory * 3 // 10)
    build_tasks = limits.OBSERVER_TASKS_MAX + 16  # its filter is the first to answer
    return {
        ChildKind.SAMPLERS: Bounds(
            *(memory * 3 // 10, limits.SAMPLERS_TASKS_MAX),
            *(memory * 2 // 10, limits.SAMPLERS_TASKS_PER_UID_MAX),
        ),
        ChildKind.BUILDS: Bounds(
            *(builds, limits.OBSERVER_BUILDS_AT_ONCE * build_tasks),
            *(min(limits.OBSERVER_MEMORY_BYTES_MIN, builds), build_tasks),
        ),
        ChildKind.ERRANDS: Bounds(min(GiB, memory // 10), limits.ERRANDS_TASKS_MAX),
    }


class Delegation:
    """The groups of one daemon. Safe to use from threads."""

    def __init__(self, service: Path | None = None, why_not: str = "", memory: int = 0) -> None:
        """`service`: the directory of the delegated cgroup, None where there is none; `memory`: bytes it may use."""
        self.why_not = why_not
        self.bounds = bounds(memory) if service is not None else {}
        self._service = service
        self._lock = threading.Lock()
        self._used: dict[Path, float] = {}  # of users, when each was last wanted (monotonic seconds)

    def group(self, kind: ChildKind, uid: int = -1) -> str:
        """The directory of the group that such a child of this user joins (`kernel.joining`); empty: it joins none.

        Raises OSError where it cannot be made.
        """
        if self._service is None:
            return ""
        top, of = self._service / kind.value, self.bounds[kind]
        if not of.user_tasks:
            return str(top)
        with self._lock:
            group = top / str(uid)
            if group not in self._used:
                self._forget()
                _make(group, of.user_memory, of.user_tasks)
            self._used[group] = time.monotonic()
        return str(group)

    def open(self) -> None:
        """Go into a group of our own and make the others, with their limits. Raises OSError; nothing is lost then."""
        if self._service is None:
            return
        own = self._service / OWN
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text("0")
        (self._service / "cgroup.subtree_control").write_text(_ENABLED)
        for kind, of in self.bounds.items():
            _make(self._service / kind.value, of.memory, of.tasks)
            if of.user_tasks:
                (self._service / kind.value / "cgroup.subtree_control").write_text(_ENABLED)

    def _forget(self) -> None:
        """Groups that nobody has wanted for a while, as far as they are empty."""
        long_ago = time.monotonic() - CHILD_GROUP_IDLE_SECONDS
        for group in [group for group, used in self._used.items() if used < long_ago]:
            with contextlib.suppress(OSError):  # somebody is in it still
                group.rmdir()
                del self._used[group]
        if len(self._used) >= CHILD_GROUPS_MAX:
            raise OSError(f"{CHILD_GROUPS_MAX} users have processes of profd: wait until some of these have ended")


_current = Delegation(why_not="nothing was asked for")


def use(delegation: Delegation) -> None:
    """Set the groups of this daemon's children; once, before it has any."""
    global _current
    _current = delegation


def current() -> Delegation:
    """The groups of this daemon's children."""
    return _current


def opened(proc: Path = Path("/proc")) -> Delegation:
    """The cgroups of this process, which is alone in its own; without any where that is not to be had."""
    found = delegated(proc)
    if isinstance(found, str):
        return Delegation(why_not=found)
    delegation = Delegation(found, memory=_memory(found, proc))
    try:
        delegation.open()
    except OSError as error:
        return Delegation(why_not=f"{found} does not take groups of children: {error.strerror or error}")
    return delegation


def delegated(proc: Path = Path("/proc")) -> Path | str:
    """The cgroup that this process has to itself; or why it has none."""
    path = re.search(r"^0::(/.*)$", _text(proc / "self/cgroup"), re.MULTILINE)
    if path is None:
        return "there is no cgroup of version 2 here"
    group = _seen(PurePosixPath(path.group(1)), _bytes(proc / "self/mountinfo"))
    if group is None:
        return "the cgroup of profd cannot be seen from here"
    if missing := set(_CONTROLLERS) - set(_text(group / "cgroup.controllers").split()):
        return f"the cgroup {group} has no limits of {' and '.join(sorted(missing))} (is the host's cgroup v1?)"
    if not _is_delegated(group):
        return f"the cgroup {group} is not left to profd"
    if _text(group / "cgroup.procs").split() != [str(os.getpid())]:
        return f"others are in the cgroup {group}, too"
    if not os.access(group / "cgroup.subtree_control", os.W_OK):
        return f"the cgroup {group} cannot be written"
    return group


def _seen(path: PurePosixPath, mountinfo: bytes) -> Path | None:
    """Where a cgroup is, by the mount that begins closest above it: the unit makes that one writable."""
    there = [(PurePosixPath(one.root), one.at) for one in mounts(mountinfo) if one.kind == "cgroup2"]
    above = [(root, at) for root, at in there if path.is_relative_to(root) and ".." not in root.parts]
    if not above:
        return None
    root, at = max(above, key=lambda mount: len(mount[0].parts))
    return Path(at) / path.relative_to(root)


def _is_delegated(group: Path) -> bool:
    try:
        return os.getxattr(group, _MARK) == b"1"
    except OSError:
        return False


def _make(group: Path, memory: int, tasks: int) -> None:
    group.mkdir(exist_ok=True)  # one of an earlier daemon may still have somebody who waits for a file system
    (group / "memory.max").write_text(str(memory))
    (group / "pids.max").write_text(str(tasks))


def _memory(group: Path, proc: Path) -> int:
    """The least of the host's memory and the limits of this cgroup and those above it, in bytes."""
    host = re.search(r"^MemTotal: +(\d+) kB", _text(proc / "meminfo"), re.MULTILINE)
    found = [int(host.group(1)) * 1024] if host else []
    texts = (_text(folder / "memory.max").strip() for folder in (group, *group.parents))
    return min([*found, *(int(text) for text in texts if text.isdecimal())])


def _text(path: Path) -> str:
    return _bytes(path).decode(errors="surrogateescape")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
