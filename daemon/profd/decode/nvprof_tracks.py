"""Where the rows of an nvprof database ran: threads of processes, streams of devices."""

from __future__ import annotations

from typing import Final

import numpy as np

from profd import limits
from profd.decode.shared import SharedTracks
from profd.errors import Exhausted
from profd.events import NO_ROW, Tracks
from profd.events.table import Array

_IDS: Final = 1 << 32  # CUPTI's ids are u32; SQLite may show their upper half as negative numbers


class NvprofTracks:
    """Adds to the tracks of a trace. Devices are processes of their own, as in Kineto's files."""

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._shared = SharedTracks(tracks)
        self._known: dict[tuple[bool, int, int], int] = {}
        self._processes: dict[tuple[bool, int], int] = {}

    def thread(self, pid: int, tid: int) -> int:
        """The track of a host thread."""
        return self._track(False, pid % _IDS, tid % _IDS)

    def threads(self, pids: Array, tids: Array) -> Array:
        """Tracks of host threads; NO_ROW where an id is none."""
        return self._mapped(False, pids, tids)

    def streams(self, devices: Array, streams: Array) -> Array:
        """Tracks of streams; NO_ROW where an id is none."""
        return self._mapped(True, devices, streams)

    def process_of(self, threads: Array) -> Array:
        """The process tracks of thread tracks."""
        different, which = np.unique(threads, return_inverse=True)
        known = [self._tracks.threads[thread]["process"] for thread in different.tolist()]
        return np.array(known, dtype=np.int32)[which]

    def name_process(self, pid: int, name: str) -> None:
        """Name it, if it has events."""
        process = self._processes.get((False, pid))
        if process is not None:
            self._tracks.processes[process]["name"] = name

    def name_thread(self, pid: int, tid: int, name: str) -> None:
        """Name it, if it has events."""
        track = self._known.get((False, pid, tid))
        if track is not None:
            self._tracks.threads[track]["name"] = name

    def name_device(self, number: int, name: str) -> None:
        """Name it, if it has events."""
        process = self._processes.get((True, number))
        if process is not None:
            self._tracks.processes[process]["name"] = f"device {number} ({name})"

    def _mapped(self, device: bool, outer: Array, inner: Array) -> Array:
        good = (outer >= -(_IDS >> 1)) & (outer < _IDS) & (inner >= -(_IDS >> 1)) & (inner < _IDS)
        found = np.full(len(outer), NO_ROW, dtype=np.int32)
        pairs = ((outer[good] % _IDS).astype(np.uint64) << np.uint64(32)) | (inner[good] % _IDS).astype(np.uint64)
        different, which = np.unique(pairs, return_inverse=True)
        tracks = [self._track(device, pair >> 32, pair & (_IDS - 1)) for pair in different.tolist()]
        found[good] = np.array(tracks, dtype=np.int32)[which]
        return found

    def _track(self, device: bool, outer: int, inner: int) -> int:
        key = (device, outer, inner)
        track = self._known.get(key)
        if track is None:
            if len(self._known) >= limits.TRACKS_MAX:
                raise Exhausted(f"The database names more than {limits.TRACKS_MAX} threads and streams.")
            process = self._shared.process(f"device {outer}" if device else outer)
            track = self._known[key] = self._shared.thread(process, inner)
            self._processes[device, outer] = process
            if device:
                self._tracks.processes[process].setdefault("name", f"device {outer}")
                self._tracks.threads[track].setdefault("name", f"stream {inner}")
        return track
