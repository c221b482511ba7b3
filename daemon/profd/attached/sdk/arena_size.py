"""How large an arena a process can bear: it is the process's memory, should nobody drain it in time."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profd.limits import ARENA_BYTES_LEAST, ARENA_BYTES_MIN, MiB
from profd.targets.memory import Bound, Memory, Room

SHARES: Final = {Bound.CGROUP: 1 / 4, Bound.HOST: 1 / 4, Bound.ADDRESS_SPACE: 1 / 2, Bound.FILE: 1.0}
"""Of what is left, by what bounds it: the job grows, too."""

_SAID: Final = {
    Bound.CGROUP: "its memory cgroup {room.name} has {free} left of {limit}",
    Bound.HOST: "this host has {free} of memory left",
    Bound.ADDRESS_SPACE: "its address space (ulimit -v) has {free} left of {limit}",
    Bound.FILE: "it may make no file, and so no arena, larger than {limit} (ulimit -f)",
}


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of the arena; or why there cannot be one. `risk`: of one that --force has asked for."""

    bytes: int
    refusal: str = ""
    risk: str = ""


class ArenaSizes:
    """Finds sizes; knows what has been given to others that share a limit, as none of it may be touched yet."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._held: defaultdict[str, int] = defaultdict(int)  # by name of what is shared

    def find(self, pid: int, most: int, *, force: bool = False) -> Size:
        """The largest arena up to `most` that the process can bear now."""
        rooms = self._memory.rooms(pid)
        tightest = min(rooms, key=self._share, default=None)
        if tightest is None or self._share(tightest) >= most:
            return Size(most)
        size = self._share(tightest) // MiB * MiB
        if size >= min(ARENA_BYTES_LEAST, most):
            return Size(size)
        said = self._said(tightest)
        if force:
            return Size(ARENA_BYTES_MIN, risk=f"force: recording takes {_mib(ARENA_BYTES_MIN)} of memory, and {said}")
        return Size(
            0,
            f"{said}, and recording needs {_mib(ARENA_BYTES_LEAST / SHARES[tightest.bound])} of that to be safe; "
            "raise the limit, or take samples, which need none: --source pyspy",
        )

    @contextlib.contextmanager
    def holding(self, pid: int, size: int) -> Iterator[None]:
        """While the process has an arena of that size."""
        names = {room.name for room in self._memory.rooms(pid) if room.name}
        for name in names:
            self._held[name] += size
        try:
            yield
        finally:
            for name in names:
                self._held[name] -= size
                if not self._held[name]:
                    del self._held[name]

    def _free(self, room: Room) -> int:
        return max(0, room.free - self._held.get(room.name, 0))

    def _share(self, room: Room) -> int:
        return int(self._free(room) * SHARES[room.bound])

    def _said(self, room: Room) -> str:
        said = _SAID[room.bound].format(room=room, free=_mib(self._free(room)), limit=_mib(room.limit or 0))
        held = self._held.get(room.name, 0)
        return f"{said} ({_mib(held)} more are promised to other recordings)" if held else said


def _mib(count: float) -> str:
    return f"{count / MiB:.1f} MiB"
