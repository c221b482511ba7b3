"""EventTables for tests, from a few fields per event; no decoder, no store."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from profd.events import COLUMNS, NO_END, DeviceType, Dictionary, EventTable, Kind, Tracks
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader
from profd.segments.writer import TraceWriter
from profd.tree.build import TreePass

CATEGORIES = {
    "cpu_op": Kind.CPU_OP,
    "user_annotation": Kind.USER_ANNOTATION,
    "python_function": Kind.PYTHON_FUNCTION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.DRIVER,
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "cuda_sync": Kind.SYNC,
    "gpu_user_annotation": Kind.GPU_USER_ANNOTATION,
    "overhead": Kind.OVERHEAD,
    "Trace": Kind.TRACE,
    "cpu_instant_event": Kind.INSTANT,
}
ON_DEVICE = {Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.SYNC, Kind.GPU_USER_ANNOTATION}


@dataclass
class Event:
    """One event; times in ns."""

    name: str
    start: int
    end: int | None
    kind: Kind = Kind.CPU_OP
    thread: int = 0
    device_type: DeviceType | None = None
    fields: dict[str, Any] = field(default_factory=dict)  # further columns; strings for coded ones


def table_of(events: Iterable[Event]) -> EventTable:
    """The table of these events, in start order, ties as given."""
    ordered = sorted(events, key=lambda event: event.start)
    dictionaries: dict[str, Dictionary] = {"name": Dictionary()}
    columns: dict[str, list[Any]] = {name: [] for name in ("name", "kind", "start", "end", "thread", "device_type")}
    extra = sorted({name for event in ordered for name in event.fields})
    for name in extra:
        columns[name] = []
    for event in ordered:
        place = event.device_type
        if place is None:
            place = DeviceType.CUDA if event.kind in ON_DEVICE else DeviceType.CPU
        columns["name"].append(dictionaries["name"].code(event.name))
        columns["kind"].append(event.kind)
        columns["start"].append(event.start)
        columns["end"].append(NO_END if event.end is None else event.end)
        columns["thread"].append(event.thread)
        columns["device_type"].append(place)
        for name in extra:
            columns[name].append(_value(name, event.fields.get(name), dictionaries))
    arrays = {name: np.array(values, dtype=COLUMNS[name].dtype) for name, values in columns.items()}
    return EventTable(arrays, dictionaries)


def _value(name: str, value: Any, dictionaries: dict[str, Dictionary]) -> Any:
    spec = COLUMNS[name]
    if spec.dictionary is not None:
        dictionary = dictionaries.setdefault(spec.dictionary, Dictionary())
        return -1 if value is None else dictionary.code(value)
    return (0 if spec.absent is None else spec.absent) if value is None else value


def nanoseconds(microseconds: Any) -> int:
    """Exact ns of a JSON number of µs that was parsed as text."""
    whole, _, fraction = str(microseconds).partition(".")
    return int(whole) * 1000 + int((fraction + "000")[:3])


def chrome_records(text: bytes) -> list[dict[str, Any]]:
    """The complete events and instants of a Chrome trace, with times as they are written."""
    document = json.loads(text.decode("utf-8", "replace"), strict=False, parse_float=str)
    records = document["traceEvents"] if isinstance(document, dict) else document
    return [record for record in records if record.get("ph") in ("X", "i")]


def events_of_chrome(text: bytes) -> list[Event]:
    """The calls and device work of a Kineto file, read in the plainest way."""
    threads: dict[tuple[str, str], int] = {}
    events = []
    for record in chrome_records(text):
        kind = CATEGORIES.get(record.get("cat", ""))
        if kind in (None, Kind.TRACE, Kind.INSTANT):
            continue
        start = nanoseconds(record["ts"])
        external = record.get("args", {}).get("External id")
        # That of a device's range for an annotation is the annotation's own.
        owned = isinstance(external, int) and kind is not Kind.GPU_USER_ANNOTATION
        thread = threads.setdefault((str(record["pid"]), str(record["tid"])), len(threads))
        fields = {"external": external} if owned else {}
        events.append(Event(record["name"], start, start + nanoseconds(record["dur"]), kind, thread, fields=fields))
    return events


def store(table: EventTable, directory: Path, *, rows: int = 1 << 19, **meta: Any) -> Path:
    """Write the table as a trace of segments of so many rows; `meta`: fields of TraceMeta."""
    directory.mkdir(parents=True)
    writer = TraceWriter(directory)
    for first in range(0, len(table), rows):
        part = table.take(np.arange(first, min(first + rows, len(table))))
        writer.write_segment(EventTable(part.columns, part.dictionaries, part.args, first))
    writer.finish(TraceMeta(**{"trace": "t1", "source": "import", **meta}))
    return directory


def stored_with_tree(
    events: list[Event], directory: Path, rows: int = 1 << 19, first_id: int = 0, **meta: Any
) -> TraceReader:
    """A stored trace with the tree that imports build, in segments of so many rows; ids of two threads from one on"""
    table = table_of(events)
    tracks = Tracks([{"id": 1}], [{"id": first_id + number, "process": 0} for number in range(2)])
    tree = TreePass(tracks, table.dictionaries, iter(()), lambda flows: None)
    tree.feed(table)
    outcome = tree.finish()
    for patch in outcome.patches:
        for name, values in patch.columns.items():
            table.columns[name][patch.rows] = values
    return TraceReader(store(table, directory / "t", rows=rows, anomalies=outcome.anomalies, tracks=tracks, **meta))
