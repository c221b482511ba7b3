"""Small tables of events and flow records, and the tree pass over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from profd.collate.collator import Collator
from profd.decode.batch import Batch
from profd.events import COLUMNS, NO_END, DeviceType, Dictionary, EventTable, Flows, Kind, Tracks
from profd.tree.build import TreePass

DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.GPU_USER_ANNOTATION)


@dataclass
class Event:
    name: str
    start: int
    end: int
    thread: int = 0
    kind: Kind = Kind.CPU_OP
    correlation: int = NO_END
    phase: str = "X"
    is_async: int = 0
    fwd_thread: int = NO_END
    device_type: DeviceType | None = None  # None: by its kind


@dataclass
class Flow:
    id: int
    phase: str
    thread: int
    time: int
    category: str = "ac2g"


def column(name, values):
    return np.array(values, dtype=COLUMNS[name].dtype)


def place_of(event):
    if event.device_type is not None:
        return event.device_type
    return DeviceType.CUDA if event.kind in DEVICE_KINDS else DeviceType.CPU


def batch_of(events, flows, dictionaries):
    names, cats = dictionaries["name"], dictionaries["cat"]
    columns = {
        "name": column("name", [names.code(event.name) for event in events]),
        "kind": column("kind", [event.kind for event in events]),
        "start": column("start", [event.start for event in events]),
        "end": column("end", [event.end for event in events]),
        "thread": column("thread", [event.thread for event in events]),
        "phase": column("phase", [ord(event.phase) for event in events]),
        "process": column("process", [0 for _ in events]),
        "fwd_thread": column("fwd_thread", [event.fwd_thread for event in events]),
        "is_async": column("is_async", [event.is_async for event in events]),
        "correlation": column("correlation", [event.correlation for event in events]),
        "device_type": column(
            "device_type",
            [place_of(event) for event in events],
        ),
    }
    count = len(flows)
    records = Flows(
        id=np.array([flow.id for flow in flows], dtype=np.int32),
        category=np.array([cats.code(flow.category) for flow in flows], dtype=np.int32),
        name=np.zeros(count, dtype=np.int32),
        phase=np.array([ord(flow.phase) for flow in flows], dtype=np.uint8),
        enclosing=np.ones(count, dtype=np.bool_),
        thread=np.array([flow.thread for flow in flows], dtype=np.int32),
        time=np.array([flow.time for flow in flows], dtype=np.int64),
        row=np.full(count, -1, dtype=np.int64),
    )
    return Batch(EventTable(columns, dictionaries), records)


@dataclass
class Result:
    columns: dict[str, list[int]]
    flows: dict[tuple[int, str], int]  # (id, phase) -> row
    anomalies: dict[str, int]


def build(directory, inputs, segment_rows=1000, thread_ids=(1, 2, 3, 4)):
    """The tree of some inputs, each a (events, flows), with all patches applied."""
    dictionaries = {"name": Dictionary(), "cat": Dictionary()}
    collator = Collator(directory, segment_rows)
    for number, (events, flows) in enumerate(inputs):
        collator.add(batch_of(events, flows, dictionaries), number)
    return run(collator, dictionaries, Tracks([], [{"id": tid, "process": 0} for tid in thread_ids]))


def run(collator, dictionaries, tracks):
    """The tree pass over what a collator holds."""
    bound: list[Flows] = []
    tree = TreePass(tracks, dictionaries, collator.flows(), bound.append)
    tables = list(collator.segments(dictionaries))
    for table in tables:
        tree.feed(table)
    outcome = tree.finish()
    names = ("parent", "depth", "self_time", "linked", "start", "end", "thread", "kind", "correlation", "name")
    columns = {
        name: np.concatenate([table.column(name) for table in tables] or [np.empty(0, dtype=np.int64)])
        for name in names
    }
    for patch in outcome.patches:
        for name, values in patch.columns.items():
            columns[name][patch.rows] = values
    flows = {
        (identity, chr(phase)): row
        for part in bound
        for identity, phase, row in zip(part.id.tolist(), part.phase.tolist(), part.row.tolist(), strict=True)
    }
    return Result({name: values.tolist() for name, values in columns.items()}, flows, outcome.anomalies)
