"""Tracks of a Perfetto trace: processes, threads, device streams, and what overlaps on them."""

from __future__ import annotations

from typing import Any, Final

from profd.events import Tracks
from profd.export import wire

# Overlapping slices of one thread beyond so many end with the slice they overlap.
LANES_MAX: Final = 64
_PID_MAX: Final = (1 << 31) - 1


class TrackTable:
    """Track uuids, and the descriptors that are still to be written."""

    def __init__(self, tracks: Tracks, after: int = 0) -> None:
        """`after`: uuids up to this one are taken."""
        self._processes: list[int] = []
        self._threads: list[int] = []
        self._owners: list[int] = []  # uuid of each thread's process
        self._named: dict[tuple[int, str], int] = {}
        self.last = after
        self.waiting: list[bytes] = []  # TrackDescriptor messages
        for process in tracks.processes:
            self._processes.append(self._describe(_process(process)))
        for thread in tracks.threads:
            owner = thread["process"]
            self._owners.append(self._processes[owner])
            pid = system_id(tracks.processes[owner]["id"])
            self._threads.append(self._describe(_thread(thread, pid, self._processes[owner])))

    def thread(self, thread: int, lane: int = 0, among: str = "overlapping") -> int:
        """The uuid of a thread's track; of the track under it for a lane from 1 on."""
        if not 0 <= thread < len(self._threads):
            return self.under(0, "no thread" if lane == 0 else f"no thread, {among} {lane}")
        return self._threads[thread] if lane == 0 else self.under(self._threads[thread], f"{among} {lane}")

    def process(self, process: int) -> int:
        """The uuid of a process."""
        return self._processes[process]

    def process_of(self, thread: int) -> int:
        """The uuid of the process of a thread; 0 where there is none."""
        return self._owners[thread] if 0 <= thread < len(self._owners) else 0

    def under(self, parent: int, name: str) -> int:
        """The uuid of a track with this name under another one, made when it is first asked for."""
        uuid = self._named.get((parent, name))
        if uuid is None:
            uuid = self._named[parent, name] = self._describe(_under(parent) + wire.text(2, name))
        return uuid

    def counter(self, parent: int, name: str) -> int:
        """The uuid of a counter's track."""
        key = (parent, f"counter {name}")
        uuid = self._named.get(key)
        if uuid is None:
            uuid = self._named[key] = self._describe(_under(parent) + wire.text(2, name) + wire.message(8))
        return uuid

    def _describe(self, fields: bytes) -> int:
        self.last += 1
        self.waiting.append(wire.integer(1, self.last) + fields)
        return self.last


def _under(parent: int) -> bytes:
    return wire.integer(5, parent) if parent else b""


def system_id(track_id: Any) -> int | None:
    """An id as the system's own, where it can be one. 0 is the idle process, and a device to Kineto."""
    real = isinstance(track_id, int) and not isinstance(track_id, bool) and 0 < track_id <= _PID_MAX
    return track_id if real else None


def _title(track: dict[str, Any]) -> str:
    labels = f" ({track['labels']})" if track.get("labels") else ""
    return f"{track.get('name') or track['id']}{labels}"


def _process(track: dict[str, Any]) -> bytes:
    pid = system_id(track["id"])
    if pid is None:
        return wire.text(2, _title(track))
    return wire.message(3, wire.integer(1, pid), wire.text(6, _title(track)))


def _thread(track: dict[str, Any], pid: int | None, owner: int) -> bytes:
    tid = system_id(track["id"])
    if pid is None or tid is None:
        return _under(owner) + wire.text(2, _title(track))
    return wire.message(4, wire.integer(1, pid), wire.integer(2, tid), wire.text(5, _title(track)))


class SliceLanes:
    """The open slices of one thread. Slices of a Perfetto track nest; what does not nest gets a track beside."""

    def __init__(self, uuids: list[int]) -> None:
        self.uuids = uuids  # by lane; the owner adds those that are missing
        self._stacks: list[list[int]] = []

    def place(self, start: int, end: int) -> tuple[int, int, list[tuple[int, int]]]:
        """(lane, end it is shown with, [(lane, end) of slices that are to be closed first, in order])."""
        closed: list[tuple[int, int]] = []
        for lane, stack in enumerate(self._stacks):
            while stack and stack[-1] <= start:
                closed.append((lane, stack.pop()))
            if not stack or end <= stack[-1]:
                stack.append(end)
                return lane, end, closed
        if len(self._stacks) < LANES_MAX:
            self._stacks.append([end])
            return len(self._stacks) - 1, end, closed
        last = self._stacks[-1]
        last.append(min(end, last[-1]))
        return LANES_MAX - 1, last[-1], closed

    def close(self) -> list[tuple[int, int]]:
        """(lane, end) of everything that is still open, innermost first."""
        return [(lane, end) for lane, stack in enumerate(self._stacks) for end in reversed(stack)]
