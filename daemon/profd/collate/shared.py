"""One set of strings and tracks for a trace that comes from several files.

Every decoder numbers strings and tracks as it meets them. The first file's
numbers become the trace's; those of the others are translated, batch by batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profd.decode.batch import Batch, Decoder
from profd.errors import Exhausted
from profd.events import COLUMNS, Dictionary, EventTable, Flows, Tracks
from profd.limits import TRACKS_MAX
from profd.store.writer import FLOW_DICTIONARIES

Array = npt.NDArray[Any]


class Shared:
    """The dictionaries and tracks of a trace. `join` each decoder before its first batch."""

    def __init__(self) -> None:
        self.dictionaries: dict[str, Dictionary] = {}
        self.tracks = Tracks()
        self._joined = False

    def join(self, decoder: Decoder) -> Translation | None:
        """How the batches of this decoder are to be translated; None: they are not."""
        if self._joined:
            return Translation(self.dictionaries, self.tracks, decoder)
        self.dictionaries, self.tracks, self._joined = decoder.dictionaries, decoder.tracks, True
        return None


class Translation:
    """From one decoder's numbers to the trace's. Processes and threads are the same where their ids are."""

    def __init__(self, dictionaries: dict[str, Dictionary], tracks: Tracks, decoder: Decoder) -> None:
        self._dictionaries = dictionaries
        self._tracks = tracks
        self._decoder = decoder
        self._codes: dict[str, list[int]] = {}
        self._processes: list[int] = []
        self._threads: list[int] = []
        self._added: list[tuple[dict[str, Any], int]] = []  # tracks taken over, and their process
        self._by_process = {_key(track): number for number, track in enumerate(tracks.processes)}
        self._by_thread = {(track["process"], _key(track)): n for n, track in enumerate(tracks.threads)}

    def apply(self, batch: Batch) -> Batch:
        """The batch in the trace's numbers; its arguments keep their own dictionaries."""
        self._learn_tracks()
        columns = dict(batch.events.columns)
        for name, values in columns.items():
            dictionary = COLUMNS[name].dictionary
            if dictionary is not None:
                columns[name] = self._recode(dictionary, values)
        for name, numbers in (("process", self._processes), ("thread", self._threads)):
            if name in columns:
                columns[name] = _look_up(numbers, columns[name])
        events = EventTable(columns, self._dictionaries, batch.events.args)
        return Batch(events, self._flows(batch.flows) if batch.flows is not None else None)

    def _flows(self, flows: Flows) -> Flows:
        for field, dictionary in FLOW_DICTIONARIES.items():
            setattr(flows, field, self._recode(dictionary, getattr(flows, field)))
        flows.thread = _look_up(self._threads, flows.thread)
        return flows

    def _recode(self, dictionary: str, values: Array) -> Array:
        codes = self._codes.setdefault(dictionary, [])
        shared = self._dictionaries.setdefault(dictionary, Dictionary())
        own = self._decoder.dictionaries[dictionary].values
        codes += [shared.code(word) for word in own[len(codes) :]]
        return _look_up(codes, values)

    def _learn_tracks(self) -> None:
        """Find a number for tracks met since the last batch."""
        for track in self._decoder.tracks.processes[len(self._processes) :]:
            number = self._by_process.setdefault(_key(track), len(self._tracks.processes))
            if number == len(self._tracks.processes):
                self._tracks.processes.append(track)
            self._processes.append(number)
        for track in self._decoder.tracks.threads[len(self._threads) :]:
            process = self._processes[track["process"]]
            number = self._by_thread.setdefault((process, _key(track)), len(self._tracks.threads))
            if number == len(self._tracks.threads):
                self._add_thread(track, process)
            self._threads.append(number)

    def _add_thread(self, track: dict[str, Any], process: int) -> None:
        if len(self._tracks.threads) >= TRACKS_MAX:
            raise Exhausted(f"The files have more than {TRACKS_MAX} threads together, the most a trace can have.")
        # Not a copy: a decoder names its tracks when it has read everything.
        self._tracks.threads.append(track)
        self._added.append((track, process))

    def finish(self) -> None:
        """Once the decoder is done: tracks that only metadata names, and names found late."""
        self._learn_tracks()
        for track, process in self._added:
            track["process"] = process
        for numbers, own, shared in (
            (self._processes, self._decoder.tracks.processes, self._tracks.processes),
            (self._threads, self._decoder.tracks.threads, self._tracks.threads),
        ):
            for number, track in zip(numbers, own, strict=True):
                for key, value in track.items():
                    if shared[number].get(key) in (None, ""):
                        shared[number][key] = value


def _key(track: dict[str, Any]) -> tuple[str, Any]:
    # 7 and "7" are two ids, and True equals 1.
    return type(track["id"]).__name__, track["id"]


def _look_up(numbers: list[int], values: Array) -> Array:
    """`values` as indices; negative ones, which mean absent, stay."""
    table = np.array([*numbers, -1], dtype=values.dtype)
    found: Array = table[np.maximum(values, -1)]
    return found
