"""How much memory a process may still take, by everything that bounds it.

Its memory cgroup and all above that (v1 and v2), the host, and its own limits on
address space and files: an arena is mapped, and made as a file. Page cache that
the kernel can drop counts as free; what is mapped of it (the program's own
code) and what has to be written first do not.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

from profd.kernel.mounts import mounts
from profd.targets import first_looks, procfs

_V1_UNLIMITED: Final = 1 << 60
_MOUNTS_BYTES: Final = 1 << 20
_PAGE: Final = resource.getpagesize()
_AT_A_TIME: Final = 16  # processes, a few ms, between which other users have their turns
_FRESH_SECONDS: Final = 0.02


class Bound(Enum):
    """A limit that leaves some room."""

    CGROUP = "memory cgroup"
    HOST = "host"
    ADDRESS_SPACE = "RLIMIT_AS"
    FILE = "RLIMIT_FSIZE"


_OF_MEMORY: Final = frozenset((Bound.CGROUP, Bound.HOST))


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that are left of one limit. `name`: of what others share with the process, else empty."""

    bound: Bound
    free: int
    limit: int | None = None
    used: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Mount:
    """A hierarchy of cgroups that may limit memory."""

    at: Path
    root: PurePosixPath  # of the hierarchy: what is mounted there
    v2: bool


class MemoryLimits:
    """Reads it from /proc and the cgroups' own files."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._mounts: list[_Mount] | None = None
        self._seen: Mapping[int, list[Room]] = {}
        self._last: tuple[float, Mapping[int, list[Room]]] = 0.0, {}  # when, of the monotonic clock, and what

    def rooms(self, pid: int) -> list[Room]:
        """The limits of this process, as far as they can be read."""
        seen = self._seen.get(pid)
        return self.read(pid) if seen is None else seen

    def left(self, pid: int) -> int | None:
        """The least of what is left of memory itself; None: not known."""
        seen = self._seen.get(pid)
        rooms = [*self._host(), *self._cgroups(pid)] if seen is None else seen
        return min((room.free for room in rooms if room.bound in _OF_MEMORY), default=None)

    def read(self, pid: int) -> list[Room]:
        """`rooms` as they are now. May be called from any thread."""
        return [*self._host(), *self._cgroups(pid), *self._limits(pid)]

    async def ahead(self, uid: int, pids: Sequence[int], together: int) -> contextlib.AbstractContextManager[None]:
        """Look at these for a user now; within the block, in which nothing may be awaited, `rooms` and `left` say what
        was seen. `together`: processes that are looked at for the same request.

        A look of the moments before is not made again: a capture would look twice before its process records.
        """
        at, last = self._last
        if time.monotonic() - at < _FRESH_SECONDS and last.keys() >= set(pids):
            return self._as_seen(last)
        seen: dict[int, list[Room]] = {}
        for first in range(0, len(pids), _AT_A_TIME):
            some = pids[first : first + _AT_A_TIME]
            seen.update(zip(some, await first_looks.look(uid, together, self._read_all, some), strict=True))
        self._last = time.monotonic(), seen
        return self._as_seen(seen)

    def _read_all(self, pids: Sequence[int]) -> list[list[Room]]:
        return list(map(self.read, pids))

    @contextlib.contextmanager
    def _as_seen(self, seen: Mapping[int, list[Room]]) -> Iterator[None]:
        self._seen = seen
        try:
            yield
        finally:
            self._seen = {}

    def _host(self) -> Iterator[Room]:
        for line in _text(self._proc / "meminfo").splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                yield Room(Bound.HOST, int(value.split()[0]) * 1024, name="host")

    def _cgroups(self, pid: int) -> Iterator[Room]:
        for path, v2 in _of_memory(_text(self._proc / str(pid) / "cgroup")):
            for mount in self._hierarchies():
                if mount.v2 == v2:
                    yield from _upwards(mount, path)

    def _hierarchies(self) -> list[_Mount]:
        if self._mounts is None:
            self._mounts = list(_mounts(procfs.read(self._proc / "self/mountinfo", _MOUNTS_BYTES) or b""))
        return self._mounts

    def _limits(self, pid: int) -> Iterator[Room]:
        folder = self._proc / str(pid)
        for line in _text(folder / "limits").splitlines():
            soft = line[26:].split(maxsplit=1)[0] if len(line) > 26 else ""
            if not soft.isdecimal():
                continue
            if line.startswith("Max address space"):
                pages = _text(folder / "statm").split(maxsplit=1)
                used = int(pages[0]) * _PAGE if pages else 0
                yield Room(Bound.ADDRESS_SPACE, max(0, int(soft) - used), int(soft), used)
            elif line.startswith("Max file size"):
                yield Room(Bound.FILE, int(soft), int(soft))


def _of_memory(cgroup: str) -> Iterator[tuple[PurePosixPath, bool]]:
    """(path, whether it is of v2) of the hierarchies that may limit memory, from /proc/PID/cgroup."""
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers or "memory" in controllers.split(","):
            yield PurePosixPath(path), not controllers


def _mounts(mountinfo: bytes) -> Iterator[_Mount]:
    for mount in mounts(mountinfo):
        v2 = mount.kind == "cgroup2"
        if v2 or (mount.kind == "cgroup" and "memory" in mount.options.split(",")):
            yield _Mount(Path(mount.at), PurePosixPath(mount.root), v2)


def _upwards(mount: _Mount, path: PurePosixPath) -> Iterator[Room]:
    """The limits of a cgroup and of all above it that can be seen here."""
    # A path with ".." is one seen from another cgroup namespace: not ours to follow.
    if ".." in path.parts or not path.is_relative_to(mount.root):
        return
    below = path.relative_to(mount.root)
    for group in (below, *below.parents):
        yield from _limits_of(mount, group)


def _limits_of(mount: _Mount, group: PurePosixPath) -> Iterator[Room]:
    folder = mount.at / group
    used = _number(folder / ("memory.current" if mount.v2 else "memory.usage_in_bytes"))
    if used is None:
        return
    # At memory.high nobody is killed, but everything of the job waits for memory.
    files = ("memory.max", "memory.high") if mount.v2 else ("memory.limit_in_bytes",)
    limits = [limit for file in files if (limit := _number(folder / file)) is not None and limit < _V1_UNLIMITED]
    if limits:
        limit = min(limits)
        free = max(0, limit - used + min(used, _droppable(folder, v2=mount.v2)))
        yield Room(Bound.CGROUP, free, limit, used, f"/{mount.root / group}".replace("//", "/"))


def _droppable(folder: Path, *, v2: bool) -> int:
    counts: dict[str, int] = {}
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            counts[name] = int(value)
    of = "" if v2 else "total_"  # of v1 without it: the group alone, without those in it
    dirty, written, mapped = (
        ("file_dirty", "file_writeback", "file_mapped") if v2 else ("dirty", "writeback", "mapped_file")
    )
    cache = counts.get(f"{of}inactive_file", 0) + counts.get(f"{of}active_file", 0)
    return max(0, cache - sum(counts.get(of + name, 0) for name in (dirty, written, mapped)))


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    return os.fsdecode(procfs.read(path, procfs.STATUS_BYTES) or b"")
