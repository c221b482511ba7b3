"""With what identity a sampler of a process runs, and whether it needs a warden. docs/security.md, "Samplers"."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.kernel import nobody
from profd.sources.pyspy.permission import Rights
from profd.targets import delegation, procfs
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import errands
from profd.targets.process import Process

SAME: Final = -1  # the daemon's own: it has no other to give
_NOBODYS: Final = itertools.cycle(nobody.SAMPLERS)
_LIBRARY: Final = b"/libpython"
_LIBRARIES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Confinement:
    """Of one sampler."""

    target: int  # pid
    uid: int
    gid: int
    native: bool
    warden: bool
    output: int | None = None  # a descriptor that it keeps, for its file; the one way for it to write any
    group: str = ""  # the cgroup that it joins, its warden, too; empty: the daemon's
    cores: frozenset[int] = frozenset()  # that it may run on, its warden, too; none: any


def confine(process: Process, native: bool, output: int | None = None) -> Confinement:
    """As the target's user; for root's targets as nobody's. Looks at files, so not in the event loop.

    Raises OSError where no cgroup can be made for it.
    """
    rights = Rights.mine()
    uid, gid = (process.uid, process.gid) if rights.uid == 0 else (SAME, SAME)
    if uid == 0:
        uid = gid = next(_NOBODYS)
    warden = rights.capable and (native or (uid != SAME and not _reaches(process.id.pid, uid, gid)))
    group = delegation.current().group(delegation.ChildKind.SAMPLERS, process.uid)
    return Confinement(process.id.pid, uid, gid, native, warden, output, group)


def _reaches(pid: int, uid: int, gid: int) -> bool:
    """Can this identity open the libraries of Python that the process has mapped? By their modes alone."""
    try:
        maps = procfs.read(f"/proc/{pid}/maps", procfs.MAPS_BYTES) or b""
        lines = [line for line in maps.split(b"\n") if _LIBRARY in line]
        found = {line.split(None, 5)[5] for line in lines}
        some = [*itertools.islice(found, _LIBRARIES_MAX)]  # of no more: there may be ten thousand libraries
        root = os.fsencode(f"/proc/{pid}/root")
        return errands.once(Path("/proc", str(pid)), "reachable", root, some, uid, gid) is not False
    except (NoAnswer, OSError):
        return True  # it is gone, not for us either, or on a disk that is dead; py-spy says so
