"""Chrome "M" records: names, labels and order of processes and threads."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from profd import limits
from profd.decode.shared import SharedTracks, id_key

_FIELDS: Final = {
    "process_name": ("process", "name", "name"),
    "process_labels": ("process", "labels", "labels"),
    "process_sort_index": ("process", "sort_index", "sort_index"),
    "thread_name": ("thread", "name", "name"),
    "thread_sort_index": ("thread", "sort_index", "sort_index"),
}


def loads(text: str) -> Any:
    """A value from the scanner's clean JSON text; numbers beyond a double become strings."""
    return json.loads(text, parse_float=_finite)


def _finite(number: str) -> float | str:
    value = float(number)
    return value if math.isfinite(value) else number


def parse_id(text: str) -> Any:
    """A pid or tid from its JSON text; None where the event had none, or null.

    Numbers and strings stay apart: 7 and "7" are two ids. Anything else is kept as its text.
    """
    if not text:
        return None
    return _id_of(loads(text))


class Metadata:
    """Gathers records while a file is read; `resolve` writes them onto the tracks.

    A later record replaces an earlier one for the same track and field. Tracks that
    only metadata names (Kineto writes 16 devices' worth) become tracks too.
    """

    def __init__(self, tracks: SharedTracks) -> None:
        self._tracks = tracks
        self._fields: dict[tuple[str, tuple[str, Any], tuple[str, Any]], tuple[Any, Any, dict[str, Any]]] = {}
        self._others: list[dict[str, Any]] = []
        self.counted: dict[str, int] = {}

    def add(self, text: str) -> None:
        """Take one record, as clean JSON text."""
        record = loads(text)
        args = record.get("args")
        name = record.get("name")
        field = _FIELDS.get(name) if isinstance(name, str) else None
        if field is None or not isinstance(args, dict) or field[1] not in args:
            if len(self._others) < limits.METADATA_RECORDS_MAX:
                self._others.append(record)
            else:
                self._drop()
            return
        track, key, column = field
        pid = _id_of(record.get("pid"))
        tid = _id_of(record.get("tid")) if track == "thread" else None
        self._fields.setdefault((track, id_key(pid), id_key(tid)), (pid, tid, {}))[2][column] = args[key]

    def _drop(self) -> None:
        self.counted["metadata_dropped"] = self.counted.get("metadata_dropped", 0) + 1

    def resolve(self) -> None:
        """Put what was gathered where it belongs."""
        processes, threads = self._tracks.tracks.processes, self._tracks.tracks.threads
        for (track, _, _), (pid, tid, values) in self._fields.items():
            if len(processes) + len(threads) >= limits.TRACKS_MAX:
                self._drop()
                continue
            number = self._tracks.process(pid)
            if track == "process":
                processes[number].update(values)
            else:
                threads[self._tracks.thread(number, tid)].update(values)
        for record in self._others:  # few, so their processes need no limit
            number = self._tracks.process(_id_of(record.get("pid")))
            processes[number].setdefault("metadata", []).append(record)
        self._name_twins()

    def _name_twins(self) -> None:
        """Give a thread that has no name that of the one whose id reads the same.

        Kineto of 2021 wrote tids as strings in events and as numbers in metadata.
        """
        threads = self._tracks.tracks.threads
        names = {(t["process"], str(t["id"])): t["name"] for t in threads if "name" in t}
        for thread in threads:
            name = names.get((thread["process"], str(thread["id"])))
            if name is not None:
                thread.setdefault("name", name)


def _id_of(value: Any) -> Any:
    """An id as `parse_id` gives it, from a decoded value."""
    if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        return value
    return json.dumps(value)
