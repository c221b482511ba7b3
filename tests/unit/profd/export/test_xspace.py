"""Out as it came in, by protobuf's own parser; and what other traces become."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd.errors import Exhausted
from profd.export import xspace
from profd.export import xspace as module
from profd.segments.reader import TraceReader
from profproto.xspace import xplane_pb2

from tests.support.importing import import_trace
from tests.support.xspace import canonical, exported, store, store_all

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.sampled_from(["a", "b", "c d", "ü", "", "@x", "correlation_id", "step_num"])
PS = st.integers(-(1 << 50), 1 << 50)


@st.composite
def stats(draw: st.DrawFn, into: Any, most: int = 4) -> None:
    for _ in range(draw(st.integers(0, most))):
        stat = into.add(metadata_id=draw(st.integers(1, 5)))
        which = draw(st.integers(2, 7))
        if which == 2:
            stat.double_value = draw(st.floats())
        elif which == 3:
            stat.uint64_value = draw(st.integers(0, (1 << 64) - 1))
        elif which == 4:
            stat.int64_value = draw(INT64)
        elif which == 5:
            stat.str_value = draw(st.text(max_size=5).filter(_storable))
        elif which == 6:
            stat.bytes_value = draw(st.binary(max_size=5))
        else:
            stat.ref_value = draw(st.integers(1, 5))


def _storable(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@st.composite
def spaces(draw: st.DrawFn) -> xplane_pb2.XSpace:
    space = xplane_pb2.XSpace(hostnames=draw(st.lists(NAMES, max_size=2)), warnings=draw(st.lists(NAMES, max_size=1)))
    if draw(st.booleans()):
        wall = space.planes.add(name="Task Environment")
        wall.stat_metadata[1].id, wall.stat_metadata[1].name = 1, "profile_start_time"
        wall.stats.add(metadata_id=1, uint64_value=1_700_000_000_123_456_789)
    for name in draw(st.lists(st.sampled_from(["/host:CPU", "/device:GPU:0", "x"]), min_size=1, max_size=3)):
        plane = space.planes.add(name=name, id=draw(INT64))
        for number in range(1, 6):
            entry = plane.stat_metadata[number]
            entry.id, entry.name, entry.description = number, draw(NAMES), draw(st.sampled_from(["", "", "d"]))
        draw(stats(plane.stats))
        for number in range(1, 4):
            metadata = plane.event_metadata[number]
            metadata.id, metadata.name = number, draw(NAMES)
            metadata.display_name, metadata.metadata = (
                draw(st.sampled_from(["", "D"])),
                draw(st.sampled_from([b"", b"m"])),
            )
            metadata.child_id.extend(draw(st.lists(st.integers(1, 3), max_size=2)))
            draw(stats(metadata.stats, 1))
        for _ in range(draw(st.integers(0, 3))):
            line = plane.lines.add(id=draw(INT64), name=draw(NAMES), display_name=draw(st.sampled_from(["", "D"])))
            line.timestamp_ns, line.duration_ps = draw(st.integers(0, 1 << 60)), draw(st.integers(0, 1 << 50))
            for _ in range(draw(st.integers(0, 5))):
                one = line.events.add(metadata_id=draw(st.integers(1, 4)), duration_ps=draw(PS))
                if draw(st.booleans()):
                    one.offset_ps = draw(PS)
                else:
                    one.num_occurrences = draw(INT64)
                draw(stats(one.stats))
    return space


@settings(max_examples=60)
@given(spaces())
def test_property_out_as_it_came_in(space: xplane_pb2.XSpace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader = store(space.SerializeToString(), Path(folder) / "t")
        again = exported(reader)
    assert canonical(again) == canonical(space)


def test_real_file(trace_data: Path, tmp_path: Path) -> None:
    content = (trace_data / "gpu_multiworker_2020.xplane.pb").read_bytes()
    reader = store(content, tmp_path / "t", kind="")
    again = exported(reader)
    # Not `assert a == b`: the report of a difference would be of 23,128 events.
    equal = canonical(again) == canonical(xplane_pb2.XSpace.FromString(content))
    assert equal
    assert len(again.SerializeToString()) < 1.1 * len(content)


def window(start: int, name: str, wide: bool) -> bytes:
    """What one of several requests to a process gives: its own numbering, its own zero."""
    space = xplane_pb2.XSpace(hostnames=["h"])
    host = space.planes.add(name="/host:CPU")
    for number, text in enumerate(["n", "hlo"], 1):
        host.stat_metadata[number].id, host.stat_metadata[number].name = number, text
    for number, text in enumerate([name, "same", "plain " + name], 1):
        metadata = host.event_metadata[number]
        metadata.id, metadata.name, metadata.metadata = number, text, b"" if number == 3 else text.encode()
    line = host.lines.add(id=5, name="python", timestamp_ns=1_000)
    for number in (1, 2, 3):
        one = line.events.add(metadata_id=number, offset_ps=number * 1_000_000, duration_ps=1_500)
        if wide:
            one.stats.add(metadata_id=1, uint64_value=number)
        else:
            one.stats.add(metadata_id=1, int64_value=number)
    wall = space.planes.add(name="Task Environment")
    wall.stat_metadata[1].id, wall.stat_metadata[1].name = 1, "profile_start_time"
    wall.stats.add(metadata_id=1, uint64_value=start)
    return space.SerializeToString()


def test_windows_of_one_process_share_their_tracks(tmp_path: Path) -> None:
    first, second = 1_700_000_000_000_000_000, 1_700_000_009_000_000_000
    reader = store_all([window(first, "a", False), window(second, "b", True)], tmp_path / "t")
    assert len(reader.tracks.processes) == 2
    assert len(reader.tracks.threads) == 1
    starts = reader.read().columns["start"].tolist()
    assert starts == [begin + 1_000 + number * 1_000 for begin in (first, second) for number in (1, 2, 3)]
    host, _ = exported(reader).planes
    (line,) = host.lines
    shown = [
        (
            host.event_metadata[one.metadata_id].name,
            host.event_metadata[one.metadata_id].metadata,
            one.offset_ps // 1_000_000,
            one.duration_ps,
            [(stat.WhichOneof("value"), stat.int64_value or stat.uint64_value) for stat in one.stats],
        )
        for one in line.events
    ]
    assert shown == [
        ("a", b"a", 1, 1_500, [("int64_value", 1)]),
        ("same", b"same", 2, 1_500, [("int64_value", 2)]),
        ("plain a", b"", 3, 1_500, [("int64_value", 3)]),
        ("b", b"b", 9_000_001, 1_500, [("uint64_value", 1)]),
        ("same", b"same", 9_000_002, 1_500, [("uint64_value", 2)]),
        ("plain b", b"", 9_000_003, 1_500, [("uint64_value", 3)]),
    ]
    assert sum(entry.name == "same" for entry in host.event_metadata.values()) == 1


def event(name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, **more}


def write_trace(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def torch_trace(tmp_path: Path) -> TraceReader:
    kernel = {"correlation": 9, "device": 1, "stream": 7, "grid": [4, 2, 1], "block": [32, 1, 1]}
    path = write_trace(
        tmp_path / "t.json",
        [
            event("ProfilerStep#7", 100, 50, cat="user_annotation"),
            event("aten::mm", 101, 10, args={"External id": 3, "odd": True}),
            event("cudaLaunchKernel", 102, 2, cat="cuda_runtime", args={"correlation": 9}),
            event("gemm", 110, 20, cat="kernel", pid=1, tid=7, args=kernel),
        ],
    )
    import_trace(path, tmp_path / "stored")
    return TraceReader(tmp_path / "stored")


def test_a_torch_trace(tmp_path: Path) -> None:
    reader = torch_trace(tmp_path)
    space = exported(reader)
    assert [plane.name for plane in space.planes] == ["/host:CPU", "/device:GPU:1", "Task Environment"]
    host, gpu, wall = space.planes
    assert wall.stats[0].uint64_value == reader.meta.start_ns
    (line,) = host.lines
    shown = {host.event_metadata[one.metadata_id].name: one for one in line.events}
    assert shown["aten::mm"].offset_ps == 1_000_000
    assert shown["aten::mm"].duration_ps == 10_000_000
    assert said(host, shown["ProfilerStep#7"])["step_num"] == 7
    assert said(host, shown["ProfilerStep#7"])["_r"] == 1
    assert said(host, shown["aten::mm"])["odd"] == "true"
    assert said(host, shown["cudaLaunchKernel"])["correlation_id"] == 9
    (stream,) = gpu.lines
    assert (stream.id, stream.name) == (7, "Stream #7(Compute)")
    stats = said(gpu, stream.events[0])
    assert stats["correlation_id"] == 9
    assert stats["kernel_details"] == "regs:0 shm:0 grid:4,2,1 block:32,1,1"


def said(plane: xplane_pb2.XPlane, one: xplane_pb2.XEvent) -> dict[str, Any]:
    return {plane.stat_metadata[stat.metadata_id].name: getattr(stat, stat.WhichOneof("value")) for stat in one.stats}


def test_a_part(tmp_path: Path) -> None:
    reader = torch_trace(tmp_path)
    out = io.BytesIO()
    start = reader.meta.start_ns or 0
    assert xspace.write(reader, out, (start + 10_500, start + 20_000), lambda what, share: None) == 3
    assert xspace.write(reader, io.BytesIO(), None, lambda what, share: None, min_duration_ns=15_000) == 2


def test_too_large_for_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "XSPACE_BYTES_MAX", 100)
    with pytest.raises(Exhausted, match="--window"):
        xspace.write(torch_trace(tmp_path), io.BytesIO(), None, lambda what, share: None)


def test_odd_tracks_and_strings(tmp_path: Path) -> None:
    path = write_trace(
        tmp_path / "t.json",
        [
            event("\ud800", 1, 1, pid="a", tid="x"),
            event("b", -1e15, 1, pid="a", tid=1 << 62),
            event("c", 2, 1, pid=7, tid=-1, args={"\udfff": "\ud800"}),
            event("d", 3, 1, pid=7, tid=1 << 70),
        ],
    )
    import_trace(path, tmp_path / "stored")
    space = exported(TraceReader(tmp_path / "stored"))
    lines = [line for plane in space.planes for line in plane.lines]
    assert len({line.id for line in lines}) == len(lines)
