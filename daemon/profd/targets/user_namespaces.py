"""The rule by which a process of a user namespace that is not ours may be looked into: ptrace(2), foretold.

Such a process has a uid of ours. It is nevertheless not for all of that user to look into: where root has made the
namespace, as for a container, the kernel lets those look that are in it, and keeps it from the user's processes
outside.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass
from typing import Final

from profd.targets import procfs

_NS_GET_PARENT: Final = 0xB702
_NS_GET_OWNER_UID: Final = 0xB704
_CAP_SYS_PTRACE: Final = 1 << 19
_DEPTH_MAX: Final = 33  # the kernel's own bound on nested user namespaces, and ours


@dataclass(frozen=True, slots=True)
class Asker:
    """The user namespace of a process that asks, and what it is capable of there, a bit each."""

    inode: int
    capabilities: int


@dataclass(frozen=True, slots=True)
class UserNamespace:
    """Of a process: inode and owner of each that is not ours, its own first. `capabilities`: what it has in its own.

    None are known where ours is not above them. `dumpable`: None where the kernel does not say. Its files in /proc do
    not tell where its user is root in the namespace: of one that is not dumpable they are that root's.
    """

    levels: tuple[tuple[int, int], ...]
    capabilities: int
    dumpable: bool | None = None

    def opens_to(self, uid: int, asker: Asker | None) -> bool:
        """Whether the process's user may look into it. `asker`: for whom; None: from ours."""
        below = None  # the owner of the one below
        for inode, owner in self.levels:
            if asker is not None and asker.inode == inode:
                if asker.capabilities & _CAP_SYS_PTRACE:
                    return True
                no_more = below is None and not self.capabilities & ~asker.capabilities
                return self.dumpable is not False and (below == uid or no_more)
            below = owner
        return below == uid


def of(pid: int, capabilities: int, link: str, dumpable: bool | None = None) -> UserNamespace | None:
    """That of a process; None where it is in ours, or where it is cannot be told. `link`: what /proc says of it."""
    if not link or link == procfs.link("/proc/self/ns/user"):
        return None
    try:
        return UserNamespace(_levels(pid), capabilities, dumpable)
    except OSError:
        return UserNamespace((), capabilities, dumpable)


def asker(pid: int) -> Asker | None:
    """A process that asks. None: it cannot be told."""
    status, link = procfs.status_of(pid), procfs.link(f"/proc/{pid}/ns/user")
    inode = link.removeprefix("user:[").removesuffix("]")
    return Asker(int(inode), status.capabilities) if status is not None and inode.isdecimal() else None


def _levels(pid: int) -> tuple[tuple[int, int], ...]:
    """OSError where it cannot be opened, or ours is not above it."""
    with open("/proc/self/ns/user", "rb") as file:
        ours = os.fstat(file.fileno())
    fd = procfs.opened(f"/proc/{pid}/ns/user", os.O_RDONLY)
    found: list[tuple[int, int]] = []
    try:
        while not os.path.samestat(now := os.fstat(fd), ours) and len(found) < _DEPTH_MAX:
            found.append((now.st_ino, struct.unpack("I", fcntl.ioctl(fd, _NS_GET_OWNER_UID, b"\0" * 4))[0]))
            parent = fcntl.ioctl(fd, _NS_GET_PARENT)
            os.close(fd)
            fd = parent
    finally:
        os.close(fd)
    return tuple(found)
