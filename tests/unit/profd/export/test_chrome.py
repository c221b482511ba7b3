"""Import, store, export: the same events, arguments and flows."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from profd.errors import BadInput
from profd.events import Kind, Tracks
from profd.questions.jobs import find
from profd.segments.reader import TraceReader

from tests.support.importing import import_trace
from tests.support.tables import Event, store, table_of

BASE = 1_790_857_026_000_000_000


def _store(tmp_path: Path, trace: Any) -> Path:
    source = tmp_path / "in.json"
    source.write_text(trace if isinstance(trace, str) else json.dumps(trace))
    import_trace(source, tmp_path / "trace")
    return tmp_path / "trace"


def _export(directory: Path, **args: Any) -> tuple[dict[str, Any], bytes]:
    fd = os.memfd_create("export")
    try:
        result = find("export")(
            {"trace_dir": str(directory), "format": "chrome", **args}, [fd], lambda what, share: None
        )
        return result, os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


def _exported(directory: Path, **args: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(_export(directory, **args)[1])
    return loaded


def _normal(value: Any) -> Any:
    """Equal JSON numbers become equal, empty arguments none, the order of keys goes."""
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in sorted(value.items()) if (key, item) != ("args", {})}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _records(trace: dict[str, Any]) -> Counter[str]:
    return Counter(json.dumps(_normal(event)) for event in trace["traceEvents"] if event["ph"] != "M")


def _names(trace: dict[str, Any]) -> list[str]:
    return [event["name"] for event in trace["traceEvents"] if event["ph"] not in ("M", "E", "e")]


def _x(name: str, ts: float, dur: float, **fields: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, **fields}


EVENTS = [
    _x("op", 1.25, 10.5, args={"External id": 1, "Input Dims": [[1, 2], []], "x": {"y": [None, True]}, "f": 2.0}),
    _x("op", 30, 1, args={"@z": 1, "@end.z": 2, "@@z": 3, "@extra": 4}, z=5),
    _x("uni é \"\\ \n\x01", 2, 1, tid="stream 7", args={"external id": 3, "Call stack": "a;b", "big": 10**30}),
    _x("k", 3, 1, cat="kernel", pid=0, tid=7, args={"correlation": 9, "stream": 7, "bytes": 4, "device": 0}),
    _x("both", 3, 1, args={"External id": 1, "external id": 3, "stream": "0x0"}),
    {"ph": "B", "cat": "c", "name": "b", "pid": 1, "tid": 3, "ts": 1, "args": {"a": 1}, "tts": 4},
    {"ph": "E", "cat": "c", "name": "b", "pid": 1, "tid": 3, "ts": 4, "tts": 5},
    {"ph": "b", "cat": "c", "name": "a", "id": "0x1", "pid": 1, "tid": 3, "ts": 5},
    {"ph": "n", "cat": "c", "name": "a", "id": "0x1", "pid": 1, "tid": 3, "ts": 6},
    {"ph": "e", "cat": "c", "name": "a", "id": "0x1", "pid": 1, "tid": 4, "ts": 7},
    {"ph": "B", "name": "open", "pid": 1, "tid": 3, "ts": 8},
    {"ph": "i", "s": "g", "name": "mark", "pid": "Traces", "tid": "t", "ts": 9},
    {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": 9,
     "args": {"Bytes": -4, "Device Type": 0, "Device Id": -1}},
    {"ph": "C", "name": "counter", "pid": 1, "tid": 2, "ts": 10, "args": {"v": 1.5, "w": 2}},
    {"ph": "X", "name": "no end", "pid": 1, "tid": 2, "ts": 11},
    {"ph": "s", "id": 9, "cat": "ac2g", "name": "ac2g", "pid": 1, "tid": 2, "ts": 1.25},
    {"ph": "f", "id": 9, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 3, "bp": "e"},
    {"ph": "f", "id2": {"local": "7"}, "cat": "x", "name": "half", "pid": 0, "tid": 7, "ts": 300},
]  # fmt: skip
METADATA = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
    {"ph": "M", "name": "num_cpus", "pid": 1, "args": {"number": 4}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "main é"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 2, "args": {"sort_index": 5}},
]


@pytest.mark.parametrize("base", [{}, {"baseTimeNanoseconds": BASE}])
def test_everything_comes_back(tmp_path: Path, base: dict[str, int]) -> None:
    trace = {"schemaVersion": 1, **base, "traceEvents": EVENTS + METADATA, "traceName": "é"}
    back = _exported(_store(tmp_path, trace))
    assert _records(back) == _records(trace)
    assert [event for event in back["traceEvents"] if event["ph"] == "M"] == METADATA
    beside = {key: value for key, value in trace.items() if key != "traceEvents"}
    assert {key: value for key, value in back.items() if key != "traceEvents"} == beside


def test_more_arguments_than_columns_come_back(tmp_path: Path) -> None:
    events = [_x("e", 1, 1, args={f"key {n}": n for n in range(700)})]
    assert _records(_exported(_store(tmp_path, events))) == _records({"traceEvents": events})


def test_nan_becomes_a_string_that_every_viewer_reads(tmp_path: Path) -> None:
    back = _exported(_store(tmp_path, '[{"ph":"X","ts":1,"dur":1,"args":{"a":NaN,"b":[-Infinity]}}]'))
    assert back["traceEvents"][0]["args"] == {"a": "NaN", "b": ["-Infinity"]}


def test_an_empty_trace(tmp_path: Path) -> None:
    assert _exported(_store(tmp_path, "[]")) == {"traceEvents": []}


def test_a_window_has_what_overlaps_it(tmp_path: Path) -> None:
    events = [_x("before", 0, 1), _x("into", 5, 10), _x("around", 0, 100), _x("in", 12, 1), _x("after", 20, 1)]
    flows = [
        {"ph": "s", "id": 1, "name": "f", "cat": "c", "pid": 1, "tid": 2, "ts": 12},
        {"ph": "f", "id": 1, "name": "f", "cat": "c", "pid": 1, "tid": 2, "ts": 20, "bp": "e"},
    ]
    directory = _store(tmp_path, {"baseTimeNanoseconds": BASE, "traceEvents": events + flows + METADATA})
    back = _exported(directory, from_ns=10_000, to_ns=20_000)
    assert sorted(_names(back)) == ["around", "f", "in", "into"]
    assert _exported(directory, from_ns=10**12)["traceEvents"] == METADATA
    with pytest.raises(BadInput, match="empty"):
        _export(directory, from_ns=5, to_ns=5)


def test_a_minimum_duration_leaves_counters_and_open_events(tmp_path: Path) -> None:
    directory = _store(tmp_path, {"traceEvents": EVENTS})
    assert sorted(set(_names(_exported(directory, min_duration_ns=3000)))) == [
        "ac2g",
        "b",
        "counter",
        "half",
        "no end",
        "op",
        "open",
    ]
    with pytest.raises(BadInput, match="min-duration"):
        _export(directory, min_duration_ns=-1)


def test_gzip_is_the_same_bytes_packed(tmp_path: Path) -> None:
    directory = _store(tmp_path, {"traceEvents": EVENTS})
    packed = _export(directory, gzip=True)[1]
    assert gzip.decompress(packed) == _export(directory)[1]
    assert packed == _export(directory, gzip=True)[1]


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'svg'"):
        find("export")({"trace_dir": str(tmp_path), "format": "svg"}, [], lambda what, share: None)


@pytest.mark.parametrize("name", ["amd_minitoy", "mtia_inference", "resnet50_workers0", "ddp_rank0"])
def test_real_traces_come_back(name: str, trace_data: Path, tmp_path: Path) -> None:
    path = trace_data / f"{name}.json.gz"
    result = import_trace(path, tmp_path / "trace")
    told, text = _export(tmp_path / "trace")
    assert told == {"events": result["events"]}
    with gzip.open(path) as file:
        given = msgspec.json.decode(file.read())
    back = msgspec.json.decode(text)
    assert _records(back) == _records(given)


def test_asynchronous_events_of_ours_become_pairs(tmp_path: Path) -> None:
    tracks = Tracks([{"id": 1}], [{"id": 7, "process": 0}, {"id": "t", "process": 0}])
    place = {"process": 0, "is_async": 1}
    events = [
        Event("moves", 1000, 5000, Kind.USER_ANNOTATION, 0, fields={**place, "end_thread": 1}),
        Event("stays", 2000, 3000, Kind.USER_ANNOTATION, 0, fields={**place, "end_thread": 0}),
        Event("plain", 2500, 6000, fields={"process": 0}),
    ]
    records = _exported(store(table_of(events), tmp_path / "t", tracks=tracks))["traceEvents"]
    seen = [(event["ph"], event["name"], event.get("id"), event["tid"]) for event in records]
    assert seen == [
        ("b", "moves", 0, 7),
        ("e", "moves", 0, "t"),
        ("b", "stays", 1, 7),
        ("e", "stays", 1, 7),
        ("X", "plain", None, 7),
    ]


def test_recorded_ranges_that_overlap_come_back_each_with_its_own_end(tmp_path: Path) -> None:
    """Of one name, within a thread (a coroutine's, flagged when it began) and to another (seen when it ended)."""
    tracks = Tracks([{"id": 1}], [{"id": 7, "process": 0}, {"id": 8, "process": 0}])
    flagged = {"process": 0, "is_async": 1, "phase": ord("b")}
    elsewhere = {"process": 0, "end_thread": 1, "phase": ord("X")}
    events = [
        Event("request", 1000, 5000, Kind.USER_ANNOTATION, 0, fields=flagged),
        Event("request", 2000, 8000, Kind.USER_ANNOTATION, 0, fields=flagged),
        Event("request", 3000, 7000, Kind.USER_ANNOTATION, 0, fields=elsewhere),
        Event("plain", 2500, 6000, fields={"process": 0, "phase": ord("X")}),
    ]
    directory = store(table_of(events), tmp_path / "t", tracks=tracks)
    records = _exported(directory)["traceEvents"]
    pairs = [(record["ph"], record["id"], record["tid"]) for record in records if record["name"] == "request"]
    assert pairs == [("b", 0, 7), ("e", 0, 7), ("b", 1, 7), ("e", 1, 7), ("b", 3, 7), ("e", 3, 8)]  # ids: rows
    again = _store(tmp_path, _export(directory)[1].decode())
    assert _records(_exported(again)) == _records({"traceEvents": records})
    table = TraceReader(again).read(["name", "start", "end"])
    assert sorted(zip(table.columns["start"].tolist(), table.columns["end"].tolist(), strict=True)) == [
        (1000, 5000),
        (2000, 8000),
        (2500, 6000),
        (3000, 7000),
    ]


def test_links_that_are_worked_out_become_flows_on_request(tmp_path: Path) -> None:
    trace = [
        _x("aten::mul", 1, 10, args={"Sequence number": 5}),
        _x("MulBackward0", 20, 5, args={"Sequence number": 5, "Fwd thread id": 1}),
        {"ph": "s", "id": "1", "cat": "mine", "name": "mine", "pid": 1, "tid": 2, "ts": 1},
    ]
    directory = _store(tmp_path, trace)
    assert [event["cat"] for event in _exported(directory)["traceEvents"] if event["ph"] in "sf"] == ["mine"]
    asked = _exported(directory, derived_flows=True)
    records = [event for event in asked["traceEvents"] if event.get("cat") == "fwdbwd"]
    assert [(event["ph"], event["id"], event["ts"], event.get("bp")) for event in records] == [
        ("s", 2, 1.0, None),
        ("f", 2, 20.0, "e"),
    ]
    # Imported again they are recorded, and nothing is worked out anew.
    again = tmp_path / "again.json"
    again.write_text(json.dumps(asked))
    import_trace(again, tmp_path / "second")
    for derived in (False, True):
        assert _records(_exported(tmp_path / "second", derived_flows=derived)) == _records(asked)
    part = _exported(directory, from_ns=15_000, to_ns=30_000, derived_flows=True)["traceEvents"]
    assert [event["ph"] for event in part if event["ph"] != "M"] == ["X", "f"]
    with pytest.raises(BadInput, match="--derived-flows does not work with the format perfetto; it does with chrome"):
        _export(directory, format="perfetto", derived_flows=True)
