"""pprof's profile.proto: read by protobuf with google/pprof's field numbers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from profd.events import Kind, Tracks

from tests.support.tables import Event, store, table_of
from tests.unit.profd.export.exported import exported

TRACKS = Tracks(processes=[{"id": 42, "name": "python"}], threads=[{"id": 1, "process": 0}, {"id": 7, "process": 0}])

# github.com/google/pprof/proto/profile.proto: message -> field -> (number, type)
PROFILE = {
    "ValueType": {"type": (1, "int64"), "unit": (2, "int64")},
    "Label": {"key": (1, "int64"), "str": (2, "int64"), "num": (3, "int64"), "num_unit": (4, "int64")},
    "Sample": {"location_id": (1, "*uint64"), "value": (2, "*int64"), "label": (3, "*Label")},
    "Line": {"function_id": (1, "uint64"), "line": (2, "int64")},
    "Location": {"id": (1, "uint64"), "mapping_id": (2, "uint64"), "address": (3, "uint64"), "line": (4, "*Line")},
    "Function": {
        "id": (1, "uint64"),
        "name": (2, "int64"),
        "system_name": (3, "int64"),
        "filename": (4, "int64"),
        "start_line": (5, "int64"),
    },
    "Profile": {
        "sample_type": (1, "*ValueType"),
        "sample": (2, "*Sample"),
        "location": (4, "*Location"),
        "function": (5, "*Function"),
        "string_table": (6, "*string"),
        "time_nanos": (9, "int64"),
        "duration_nanos": (10, "int64"),
        "comment": (13, "*int64"),
        "default_sample_type": (14, "int64"),
    },
}


@pytest.fixture(scope="module")
def profile() -> Any:
    """The class of profile.proto's Profile."""
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="test.pprof", syntax="proto3")
    for name, fields in PROFILE.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            plain = kind.lstrip("*")
            described: Any = message.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            if plain in PROFILE:
                described.type, described.type_name = 11, f".test.pprof.{plain}"
            else:
                described.type = {"int64": 3, "uint64": 4, "string": 9}[plain]
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.pprof.Profile"))


def samples(message: Any) -> dict[tuple[str, tuple[str, ...]], list[int]]:
    """(thread, stack with the innermost frame last) -> values."""
    words = message.string_table
    functions = {function.id: words[function.name] for function in message.function}
    places = {place.id: functions[place.line[0].function_id] for place in message.location}
    return {
        (words[sample.label[0].str], tuple(places[place] for place in reversed(sample.location_id))): list(sample.value)
        for sample in message.sample
    }


def test_stacks_and_times(profile: Any, tmp_path: Path) -> None:
    rows = [
        Event("train.py(12): main", 0, 100, Kind.PYTHON_FUNCTION),
        Event("op", 10, 40),
        Event("launch", 20, 25, Kind.RUNTIME),
        Event("op", 50, 60),
        Event("kernel", 30, 80, Kind.KERNEL, thread=1, fields={"linked": 2}),
    ]
    directory = store(table_of(rows), tmp_path / "t", tracks=TRACKS, title="train.py")
    count, packed = exported(directory, "pprof")
    message = profile.FromString(gzip.decompress(packed))
    assert count == 5
    words = list(message.string_table)
    assert words[0] == ""
    assert len(set(words)) == len(words)
    assert [(words[kind.type], words[kind.unit]) for kind in message.sample_type] == [
        ("calls", "count"),
        ("cpu", "nanoseconds"),
        ("device", "nanoseconds"),
    ]
    assert words[message.default_sample_type] == "cpu"
    cpu, device = "python 42 / 1", "python 42 / 7"
    assert samples(message) == {
        (cpu, ("main",)): [1, 60, 0],
        (cpu, ("main", "op")): [2, 35, 0],
        (cpu, ("main", "op", "launch")): [1, 5, 0],
        (device, ("main", "op", "launch", "kernel")): [1, 0, 50],
    }
    (main,) = [function for function in message.function if words[function.name] == "main"]
    assert (words[main.filename], main.start_line) == ("train.py", 12)
    assert all(place.id and place.line[0].function_id == place.id for place in message.location)


def test_short_events_are_their_callers(profile: Any, tmp_path: Path) -> None:
    directory = store(table_of([Event("a", 0, 100), Event("b", 10, 20)]), tmp_path / "t", tracks=TRACKS)
    message = profile.FromString(gzip.decompress(exported(directory, "pprof", min_duration_ns=50)[1]))
    assert list(samples(message).values()) == [[1, 100, 0]]


def test_an_empty_trace(profile: Any, tmp_path: Path) -> None:
    message = profile.FromString(gzip.decompress(exported(store(table_of([]), tmp_path / "t"), "pprof")[1]))
    assert len(message.sample) == 0
    assert message.string_table[0] == ""
