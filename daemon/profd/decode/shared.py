"""Codes and track numbers of one input in the numbering of the whole trace.

A trace may have several inputs; each decoder numbers what it meets from 0, and
these maps turn its numbers into those of the shared dictionaries and tracks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profd.events import Dictionary, Tracks

Codes = npt.NDArray[np.int32]


class Numbers:
    """Own number -> shared number. Absent (-1) stays absent."""

    def __init__(self) -> None:
        self._shared: list[int] = []
        self._same = True

    def __len__(self) -> int:
        return len(self._shared)

    def __getitem__(self, own: int) -> int:
        return self._shared[own]

    def extend(self, shared: list[int]) -> None:
        """The next own numbers are these shared ones."""
        first = len(self._shared)
        self._same = self._same and shared == list(range(first, first + len(shared)))
        self._shared += shared

    def map(self, own: Codes) -> Codes:
        """Shared numbers of an array; the array itself while both numberings are the same."""
        if self._same:
            return own
        # Index -1 is the last element: the sentinel maps to itself.
        return np.array([*self._shared, -1], dtype=np.int32)[own]


class SharedDictionary:
    """A decoder's view of one dictionary of the trace."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._numbers = Numbers()

    def extend(self, values: list[str]) -> None:
        """Strings that got the decoder's next codes, in order."""
        self._numbers.extend(self._dictionary.codes(values))

    def extend_distinct(self, values: list[str]) -> None:
        """The same of strings none of which the decoder has given before: quicker for a trace of one input."""
        if len(self._numbers) == len(self._dictionary):  # whatever is in there came from here
            first = len(self._dictionary)
            self._dictionary.extend(values)
            self._numbers.extend(list(range(first, first + len(values))))
        else:
            self.extend(values)

    def map(self, codes: Codes) -> Codes:
        """Codes of the trace."""
        return self._numbers.map(codes)


def id_key(value: Any) -> tuple[str, Any]:
    """An id as a dictionary key that keeps 7, 7.0 and "7" apart."""
    return type(value).__name__, value


class SharedTracks:
    """Processes and threads of a trace, found by their ids."""

    def __init__(self, tracks: Tracks) -> None:
        self.tracks = tracks
        self._processes = {id_key(process["id"]): number for number, process in enumerate(tracks.processes)}
        self._threads = {
            (thread["process"], *id_key(thread["id"])): number for number, thread in enumerate(tracks.threads)
        }

    def process(self, pid: Any) -> int:
        """The track number of a process, which is added if it is new."""
        key = id_key(pid)
        number = self._processes.get(key)
        if number is None:
            number = self._processes[key] = len(self.tracks.processes)
            self.tracks.processes.append({"id": pid})
        return number

    def thread(self, process: int, tid: Any) -> int:
        """The track number of a thread of process `process` (a track number), added if it is new."""
        key = (process, *id_key(tid))
        number = self._threads.get(key)
        if number is None:
            number = self._threads[key] = len(self.tracks.threads)
            self.tracks.threads.append({"id": tid, "process": process})
        return number
