"""Chrome "M" records: names, labels and order of processes and threads."""

from __future__ import annotations

import json
from typing import Any, Final

from profd.events import Tracks

_FIELDS: Final = {
    "process_name": ("process", "name", "name"),
    "process_labels": ("process", "labels", "labels"),
    "process_sort_index": ("process", "sort_index", "sort_index"),
    "thread_name": ("thread", "name", "name"),
    "thread_sort_index": ("thread", "sort_index", "sort_index"),
}
_OTHER_RECORDS_MAX: Final = 1000  # of names that say nothing about tracks


def parse_id(text: str) -> Any:
    """A pid or tid from its JSON text; None where the event had none.

    Numbers and strings stay apart: 7 and "7" are two ids. Anything else is kept as its text.
    """
    if not text:
        return None
    value = json.loads(text)
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else text


class Metadata:
    """Gathers records while a file is read; `resolve` writes them onto the tracks.

    A later record replaces an earlier one for the same track and field. Tracks that
    only metadata names (Kineto writes 16 devices' worth) become tracks too.
    """

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._fields: dict[tuple[str, Any, Any], dict[str, Any]] = {}
        self._others: list[dict[str, Any]] = []
        self.counted: dict[str, int] = {}

    def add(self, text: str) -> None:
        """Take one record, as clean JSON text."""
        record = json.loads(text)
        args = record.get("args")
        name = record.get("name")
        field = _FIELDS.get(name) if isinstance(name, str) else None
        if field is None or not isinstance(args, dict) or field[1] not in args:
            if len(self._others) < _OTHER_RECORDS_MAX:
                self._others.append(record)
            else:
                self.counted["metadata_dropped"] = self.counted.get("metadata_dropped", 0) + 1
            return
        track, key, column = field
        pid = _id_of(record.get("pid"))
        tid = _id_of(record.get("tid")) if track == "thread" else None
        self._fields.setdefault((track, pid, tid), {})[column] = args[key]

    def resolve(self) -> None:
        """Put what was gathered where it belongs."""
        processes = {_id_of(process["id"]): number for number, process in enumerate(self._tracks.processes)}
        threads = {(thread["process"], _id_of(thread["id"])): thread for thread in self._tracks.threads}
        for (track, pid, tid), values in self._fields.items():
            number = processes.get(pid)
            if number is None:
                number = processes[pid] = len(self._tracks.processes)
                self._tracks.processes.append({"id": pid[1]})
            if track == "process":
                self._tracks.processes[number].update(values)
                continue
            thread = threads.get((number, tid))
            if thread is None:
                thread = threads[number, tid] = {"id": tid[1], "process": number}
                self._tracks.threads.append(thread)
            thread.update(values)
        for record in self._others:
            number = processes.get(_id_of(record.get("pid")))
            if number is None:
                number = processes[_id_of(record.get("pid"))] = len(self._tracks.processes)
                self._tracks.processes.append({"id": _id_of(record.get("pid"))[1]})
            self._tracks.processes[number].setdefault("metadata", []).append(record)


def _id_of(value: Any) -> tuple[str, Any]:
    """An id as a dictionary key that keeps 7, 7.0 and "7" apart."""
    if value is None or (isinstance(value, int | float | str) and not isinstance(value, bool)):
        return type(value).__name__, value
    text = json.dumps(value)
    return "json", text
