"""Derived lines inside Chrome and Perfetto exports, and what becomes of them when such a file is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profd.export.derived import CATEGORY, drawn_lines
from profd.segments.reader import TraceReader

from tests.support.importing import import_trace
from tests.support.timeline_cases import case, xspace_of
from tests.support.xspace import store
from tests.unit.profd.export.exported import exported


@pytest.fixture
def reader(tmp_path: Path) -> TraceReader:
    return store(xspace_of(case("nested_roots_same_level")["input"]), tmp_path / "trace")


def chrome(reader: TraceReader, **args: Any) -> list[dict[str, Any]]:
    records = json.loads(exported(reader.directory, "chrome", **args)[1])["traceEvents"]
    return [record for record in records if record.get("cat") == CATEGORY]


def test_lines_by_plane(reader: TraceReader) -> None:
    drawn = list(drawn_lines(reader, None))
    planes = [str(reader.tracks.processes[line.process].get("name")) for line in drawn]
    assert set(zip(planes, [line.title for line in drawn], strict=True)) == {
        ("/device:GPU:0", "Steps (derived)"),
        ("/device:GPU:0", "XLA Modules - from #7 (derived)"),
        ("/device:GPU:0", "XLA Ops - from #7 (derived)"),
        ("/device:GPU:0", "Launch Stats (derived)"),
        ("/host:CPU", "Steps (derived)"),
    }
    (ops,) = [line for line in drawn if line.title.startswith("XLA Ops")]
    assert ops.spans == [("x", 20, 300)]
    assert not list(drawn_lines(reader, (5000, 6000)))
    assert not list(drawn_lines(reader, None, 10_000_000))


def test_chrome_has_them_and_an_import_leaves_them_out(reader: TraceReader, tmp_path: Path) -> None:
    records = chrome(reader)
    assert {record["tid"] for record in records} == {line.title for line in drawn_lines(reader, None)}
    (op,) = [record for record in records if record["tid"].startswith("XLA Ops")]
    assert (op["name"], op["dur"]) == ("x", 0.28)
    assert not chrome(reader, from_ns=5000, to_ns=6000)
    file = tmp_path / "again.json"
    file.write_bytes(exported(reader.directory, "chrome")[1])
    result = import_trace(file, tmp_path / "again")
    assert result["events"] == len(reader)
    assert result["anomalies"]["derived_left_out"] == len(records)


def test_perfetto_has_them_on_tracks_of_their_own(reader: TraceReader) -> None:
    trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2").Trace()
    trace.ParseFromString(exported(reader.directory, "perfetto")[1])
    titles = {packet.track_descriptor.name for packet in trace.packet if packet.HasField("track_descriptor")}
    assert {line.title for line in drawn_lines(reader, None)} <= titles
    open_slices = 0
    for packet in trace.packet:
        if packet.HasField("track_event"):
            open_slices += {1: 1, 2: -1}.get(packet.track_event.type, 0)
    assert open_slices == 0
