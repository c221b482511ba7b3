"""How large an arena a process can bear: it is the process's memory, should nobody drain it in time."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profd.limits import ARENA_BYTES_LEAST, ARENA_BYTES_MIN, ARENA_UID_SHARE, ARENA_USERS_SHARE, MiB
from profd.targets.memory import Bound, MemoryLimits, Room

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

    def __init__(self, memory: MemoryLimits | None = None) -> None:
        self.memory = memory or MemoryLimits()  # of which a look at many is asked ahead
        self._held: defaultdict[str, int] = defaultdict(int)  # by name of what is shared
        self._users: defaultdict[int, int] = defaultdict(int)  # by uid, of those who have a part of the host only

    def find(self, pid: int, most: int, *, uid: int = 0, force: bool = False) -> Size:
        """The largest arena up to `most` that the process, of this user, can bear now."""
        rooms = self.memory.rooms(pid)
        tightest = min(rooms, key=self._share, default=None)
        least = min((self._part(room, uid) for room in rooms if room.bound is Bound.HOST), default=most)
        if not force and least < min(ARENA_BYTES_LEAST, most) and not self._refuses(tightest, most):
            return Size(0, self._beyond_part(uid))
        if tightest is None or min(self._share(tightest), least) >= most:
            return Size(most)
        size = min(self._share(tightest), least) // MiB * MiB
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
    def holding(self, pid: int, size: int, uid: int = 0) -> Iterator[None]:
        """While the process, of this user, has an arena of that size, or is asked to make one."""
        names = {room.name for room in self.memory.rooms(pid) if room.name}
        for name in names:
            self._held[name] += size
        if not _has_all(uid):
            self._users[uid] += size
        try:
            yield
        finally:
            if not _has_all(uid):
                self._users[uid] -= size
                if not self._users[uid]:
                    del self._users[uid]
            for name in names:
                self._held[name] -= size
                if not self._held[name]:
                    del self._held[name]

    def _part(self, host: Room, uid: int) -> int:
        """The part of the host's memory that may still be promised to this user."""
        if _has_all(uid):
            return host.free
        of_all = ARENA_USERS_SHARE * host.free - sum(self._users.values())
        return max(0, int(min(of_all, ARENA_UID_SHARE * host.free - self._users.get(uid, 0))))

    def _refuses(self, tightest: Room | None, most: int) -> bool:
        """Whether there is too little whosever it is."""
        return tightest is not None and self._share(tightest) < min(ARENA_BYTES_LEAST, most)

    def _beyond_part(self, uid: int) -> str:
        mine, all_users = self._users.get(uid, 0), sum(self._users.values())
        return (
            f"{_mib(mine)} of this host's memory are promised to other recordings of your processes, and "
            f"{_mib(all_users)} to those of all users: that is as much as may be (a quarter of what is free to one "
            "user); wait for one to end, or take samples, which need none: --source pyspy"
        )

    def _free(self, room: Room) -> int:
        return max(0, room.free - self._held.get(room.name, 0))

    def _share(self, room: Room) -> int:
        return int(self._free(room) * SHARES[room.bound])

    def _said(self, room: Room) -> str:
        said = _SAID[room.bound].format(room=room, free=_mib(self._free(room)), limit=_mib(room.limit or 0))
        held = self._held.get(room.name, 0)
        return f"{said} ({_mib(held)} more are promised to other recordings)" if held else said


def _has_all(uid: int) -> bool:
    """The users who run the host or this daemon are not bound to a share."""
    return uid in (0, os.geteuid())


def _mib(count: float) -> str:
    return f"{count / MiB:.1f} MiB"
