"""XSpaces decoded: what is shown, what is kept, and what damage costs."""

from __future__ import annotations

import contextlib
import io
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd._scan import wire_fields, xspace_events
from profd.decode import xspace as module
from profd.decode.open import open_decoder
from profd.decode.xspace_kinds import DERIVED_MIN
from profd.decode.xspace_plane import STAT_TYPES
from profd.errors import BadTrace
from profd.events import DeviceType, Dictionary, EventTable, Kind, Tracks
from profproto.xspace import xplane_pb2

from tests.support.xspace import decode

SESSION = 1_700_000_000_000_000_000


def names(table: EventTable) -> list[str]:
    values = table.dictionaries["name"].values
    return [values[code] for code in table.columns["name"].tolist()]


def kinds(table: EventTable) -> list[Kind]:
    return [Kind(kind) for kind in table.columns["kind"].tolist()]


def arg(table: EventTable, key: str, kind: str) -> dict[int, Any]:
    column = table.args[key, kind]
    values = column.values.tolist()
    if column.dictionary is not None:
        values = [column.dictionary.values[value] for value in values]
    return dict(zip(column.rows.tolist(), values, strict=True))


def plane(space: xplane_pb2.XSpace, name: str, events: list[str], stats: list[str] = ()) -> xplane_pb2.XPlane:  # type: ignore[assignment]
    """A plane whose metadata ids are 1, 2 … in the order of these names."""
    made = space.planes.add(name=name)
    for number, text in enumerate(events, 1):
        made.event_metadata[number].id, made.event_metadata[number].name = number, text
    for number, text in enumerate(stats, 1):
        made.stat_metadata[number].id, made.stat_metadata[number].name = number, text
    return made


def environment(space: xplane_pb2.XSpace) -> None:
    made = plane(space, "Task Environment", [], ["profile_start_time"])
    made.stats.add(metadata_id=1, uint64_value=SESSION)


def test_times_are_unix_to_the_picosecond() -> None:
    space = xplane_pb2.XSpace()
    host = plane(space, "/host:CPU", ["a", "b"])
    line = host.lines.add(id=-5, name="python", timestamp_ns=7000)
    line.events.add(metadata_id=1, offset_ps=1_001, duration_ps=2_998)
    line.events.add(metadata_id=2, offset_ps=-1, duration_ps=1)
    environment(space)
    decoder, (table,) = decode(space.SerializeToString())
    assert names(table) == ["a", "b"]
    assert table.columns["start"].tolist() == [SESSION + 7001, SESSION + 6999]
    assert table.columns["start_ps"].tolist() == [1, 999]
    assert table.columns["end"].tolist() == [SESSION + 7003, SESSION + 7000]
    assert table.columns["end_ps"].tolist() == [999, 0]
    assert decoder.tracks.threads[0]["id"] == -5
    assert decoder.findings.top_level["baseTimeNanoseconds"] == SESSION
    assert decoder.findings.lost == {}


def test_absolute_times_stay() -> None:
    space = xplane_pb2.XSpace()
    host = plane(space, "/host:CPU", ["a"])
    host.lines.add(id=1, timestamp_ns=SESSION + 5).events.add(metadata_id=1, duration_ps=1000)
    environment(space)
    _, (table,) = decode(space.SerializeToString())
    assert table.columns["start"].tolist() == [SESSION + 5]
    assert "start_ps" not in table.columns


def test_kinds_places_and_links() -> None:
    space = xplane_pb2.XSpace()
    host = plane(
        space, "/host:CPU", ["MatMul", "$a.py:1 f", "cuLaunchKernel", "train", "count"], ["correlation_id", "_r"]
    )
    line = host.lines.add(id=1, name="python")
    for number in range(1, 5):
        line.events.add(metadata_id=number, offset_ps=number * 1000, duration_ps=500)
    line.events[2].stats.add(metadata_id=1, uint64_value=9)
    line.events[3].stats.add(metadata_id=2, int64_value=1)
    line.events.add(metadata_id=5, num_occurrences=12, duration_ps=77_000)
    device = plane(space, "/device:GPU:3", ["gemm", "MemcpyH2D", "x"], ["correlation_id", "memset_details"])
    stream = device.lines.add(id=14, name="Stream #14(Compute)")
    stream.events.add(metadata_id=1, duration_ps=1000).stats.add(metadata_id=1, uint64_value=9)
    stream.events.add(metadata_id=2, duration_ps=1000)
    stream.events.add(metadata_id=3, duration_ps=1000).stats.add(metadata_id=2, str_value="size:1")
    device.lines.add(id=DERIVED_MIN, name="Steps").events.add(metadata_id=3, duration_ps=9000)
    decoder, (cpu, gpu, steps) = decode(space.SerializeToString())
    assert kinds(cpu) == [Kind.CPU_OP, Kind.PYTHON_FUNCTION, Kind.DRIVER, Kind.USER_ANNOTATION, Kind.TRACE]
    assert arg(cpu, "@num_occurrences", "int") == {4: 12}
    assert cpu.columns["correlation"].tolist()[2] == 9
    assert kinds(gpu) == [Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET]
    assert set(gpu.columns["device_type"].tolist()) == {DeviceType.CUDA}
    assert gpu.columns["device"].tolist() == [3, 3, 3]
    assert gpu.columns["stream"].tolist() == [14, 14, 14]
    assert gpu.columns["correlation"].tolist()[0] == 9
    assert kinds(steps) == [Kind.GPU_USER_ANNOTATION]
    assert [process["id"] for process in decoder.tracks.processes] == ["/host:CPU", "/device:GPU:3"]


def test_the_process_is_named_by_the_metadata_plane() -> None:
    space = xplane_pb2.XSpace()
    plane(space, "/host:CPU", [])
    plane(space, "/host:metadata", [], ["process_id"]).stats.add(metadata_id=1, uint64_value=4711)
    decoder, _ = decode(space.SerializeToString())
    assert [process["id"] for process in decoder.tracks.processes] == [4711, "/host:metadata"]


def test_stats_have_types() -> None:
    space = xplane_pb2.XSpace()
    host = plane(space, "/host:CPU", ["e"], ["n", "text of a ref", "@at"])
    event = host.lines.add(id=1).events.add(metadata_id=1)
    event.stats.add(metadata_id=1, int64_value=-3)
    event.stats.add(metadata_id=1, uint64_value=3)
    event.stats.add(metadata_id=1, uint64_value=(1 << 64) - 1)
    event.stats.add(metadata_id=1, double_value=0.5)
    event.stats.add(metadata_id=1, str_value="s")
    event.stats.add(metadata_id=1, str_value="t")
    event.stats.add(metadata_id=1, ref_value=2)
    event.stats.add(metadata_id=1, bytes_value=b"\x00\xff")
    event.stats.add(metadata_id=3, ref_value=99)
    event.stats.add(metadata_id=44, int64_value=1)
    event.stats.add(metadata_id=1)
    decoder, (table,) = decode(space.SerializeToString())
    found = {(key, kind): arg(table, key, kind)[0] for key, kind in table.args}
    # Which of several types has the plain key is up to their order in the file's own numbering.
    assert sorted(map(repr, found.values())) == sorted(
        map(repr, ["18446744073709551615", 3, -3, 0.5, "s", "t", "AP8=", "text of a ref", "#99", 1])
    )
    assert found["@@at", "str"] == "#99"
    assert found["#44", "int"] == 1
    assert found["n", "float"] == 0.5
    assert found["n#2", "json"] == "18446744073709551615"
    told = {(key, kind): (name, type_) for key, kind, name, type_ in decoder.tracks.processes[0]["xspace"]["stat_keys"]}
    assert told["@@at", "str"] == ("@at", "ref")
    types = sorted(type_ for name, type_ in told.values() if name == "n")
    assert types == ["bytes", "double", "int64", "ref", "str", "str", "uint64", "uint64"]
    assert decoder.findings.lost == {"stat_without_value": 1}


def test_what_is_missing_or_double_is_counted() -> None:
    space = xplane_pb2.XSpace()
    space.errors.append("collector failed")
    for _ in range(2):
        host = plane(space, "/host:CPU", ["e"])
        line = host.lines.add(id=1)
        line.events.add(metadata_id=77, duration_ps=-5000)
        line.events.add(metadata_id=1, offset_ps=(1 << 63) - 1)
        line.events.add(metadata_id=1, duration_ps=-(1 << 63))
    host.lines.add(id=1, timestamp_ns=(1 << 63) - 1).events.add(metadata_id=1)
    decoder, tables = decode(space.SerializeToString())
    assert [names(table) for table in tables] == [["#77"], ["#77"]]
    assert decoder.findings.lost == {"bad_time": 5}
    assert decoder.findings.counted == {"missing_metadata": 2, "end_before_start": 2, "duplicate_plane": 1}
    assert decoder.findings.warnings == ["collector failed"]
    assert [process["id"] for process in decoder.tracks.processes] == ["/host:CPU", "/host:CPU#2"]


def test_metadata_beyond_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "XSPACE_METADATA_BYTES_MAX", 100)
    space = xplane_pb2.XSpace()
    made = plane(space, "/host:metadata", ["small", "large"])
    made.event_metadata[1].metadata = b"x" * 10
    made.event_metadata[2].metadata = b"x" * 1000
    decoder, _ = decode(space.SerializeToString())
    assert decoder.findings.lost == {"metadata_too_large": 1}
    kept = decoder.tracks.processes[0]["xspace"]["event_metadata"]
    assert {(entry["name"], "metadata" in entry) for entry in kept} == {("small", True), ("large", False)}


def test_long_lines_come_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_AT_ONCE", 10)
    monkeypatch.setattr(module, "STATS_AT_ONCE", 15)
    space = xplane_pb2.XSpace()
    host = plane(space, "/host:CPU", ["e"], ["n"])
    line = host.lines.add(id=1)
    for number in range(57):
        event = line.events.add(metadata_id=1, offset_ps=number * 1000)
        for _ in range(number % 4):
            event.stats.add(metadata_id=1, int64_value=number)
    _, tables = decode(space.SerializeToString())
    assert max(map(len, tables)) <= 10
    assert np.concatenate([table.columns["start"] for table in tables]).tolist() == list(range(57))


@pytest.mark.slow
def test_a_line_of_ten_million_events() -> None:
    """In slices, each let go before the next; protobuf's own objects of it would take a gigabyte."""
    event = b"\x22\x06\x08\x01\x10\x02\x18\x03"  # metadata 1, offset 2, duration 3
    line = event * 10_000_000

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(content)) + content

    content = field(1, field(2, b"/host:CPU") + field(3, line))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    decoder = module.XSpaceDecoder(io.BytesIO(content), len(content))
    largest = seen = 0
    for batch in decoder.batches():
        largest = max(largest, len(batch.events))
        seen += len(batch.events)
    grown = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert (seen, largest) == (10_000_000, module.EVENTS_AT_ONCE)
    assert grown < len(content) + (64 << 20)
    assert decoder.findings.counted == {"missing_metadata": 10_000_000}


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def test_no_space_at_all() -> None:
    for content in (b"", b"\x22\x01h", b"\xff" * 40):
        with pytest.raises(BadTrace, match="XPlane"):
            decode(content)


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "XSPACE_BYTES_MAX", 10)
    with pytest.raises(BadTrace, match="10"):
        decode(b"\x0a" * 11)


def small() -> bytes:
    space = xplane_pb2.XSpace(hostnames=["h"])
    host = plane(space, "/host:CPU", ["a", "b"], ["n", "t"])
    host.event_metadata[2].metadata = b"hlo"
    host.stats.add(metadata_id=1, int64_value=4)
    line = host.lines.add(id=1, name="python", timestamp_ns=10)
    for number in range(20):
        event = line.events.add(metadata_id=1 + number % 2, offset_ps=number * 10_000, duration_ps=5_000)
        event.stats.add(metadata_id=1, int64_value=number)
        event.stats.add(metadata_id=2, str_value="text")
    environment(space)
    return space.SerializeToString()


def test_every_truncation_keeps_what_is_readable() -> None:
    content = small()
    whole = sum(map(len, decode(content)[1]))
    before = 0
    for size in range(1, len(content)):
        try:
            decoder, tables = decode(content[:size])
        except BadTrace:
            assert before == 0
            continue
        rows = sum(map(len, tables))
        assert before <= rows <= whole
        before = rows
        # A cut between two planes cannot be seen.
        assert decoder.findings.truncated or rows in (0, whole)
    assert before == whole


def test_fuzz_damaged_bytes() -> None:
    content = small()
    numbers = random.Random(7)
    for _ in range(1500):
        damaged = bytearray(content)
        for _ in range(numbers.randint(1, 6)):
            damaged[numbers.randrange(len(damaged))] = numbers.randrange(256)
        try:
            _, tables = decode(bytes(damaged))
        except BadTrace:
            continue
        assert sum(map(len, tables)) <= len(content)


@given(st.binary(max_size=300))
def test_fuzz_any_bytes(content: bytes) -> None:
    with contextlib.suppress(BadTrace):
        decode(b"\x0a\x7f" + content)


LIMITS = {"events": 10, "stats": 1000, "event_stats": 1000, "stat_columns": 1000}
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.one_of(
    st.tuples(st.just("int64_value"), NUMBERS),
    st.tuples(st.just("uint64_value"), st.integers(0, (1 << 64) - 1)),
    st.tuples(st.just("double_value"), st.floats(allow_nan=False)),
    st.tuples(st.just("str_value"), st.text(max_size=3)),
    st.tuples(st.just("bytes_value"), st.binary(max_size=3)),
    st.tuples(st.just("ref_value"), st.integers(0, 3)),
    st.none(),
)
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(st.none(), st.tuples(st.just("offset_ps"), NUMBERS), st.tuples(st.just("num_occurrences"), NUMBERS)),
        NUMBERS,
        st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=5),
    ),
    max_size=8,
)
FIELD_NUMBERS = {f"{name}_value": number for number, name in STAT_TYPES.items()}


def stats_of(found: dict[str, Any]) -> dict[tuple[int, int], list[tuple[int, Any]]]:
    """(id, type) -> (row, value), as protobuf would give them."""
    shown = {}
    for number, kind, rows, values, distinct, _ in found["stats"]:
        if distinct is not None:
            values = np.array([distinct[place] for place in values.tolist()], dtype=object)
        elif kind == 2:
            values = values.view(np.float64)
        elif kind == 3:
            values = values.view(np.uint64)
        given = [found["texts"][value] if kind in (5, 6) else value for value in values.tolist()]
        shown[number, kind] = list(zip(rows.tolist(), given, strict=True))
    return shown


@given(EVENTS, st.sampled_from([0, 1_700_000_000_000_000_000, -5]))
def test_property_columns_are_what_protobuf_reads(given_events: list[Any], base: int) -> None:
    line = xplane_pb2.XLine()
    for metadata, value, duration, stats in given_events:
        event = line.events.add(metadata_id=metadata, duration_ps=duration)
        if value is not None:
            setattr(event, value[0], value[1])
        for number, stat in stats:
            kept = event.stats.add(metadata_id=number)
            if stat is not None:
                setattr(kept, stat[0], stat[1])
    data = np.frombuffer(line.SerializeToString(), dtype=np.uint8)
    found = xspace_events(data, 0, len(data), base, **LIMITS)

    timed = [e for e in line.events if max(abs(e.offset_ps), abs(e.duration_ps)) < 1 << 62]
    assert found["lost"]["bad_time"] == len(line.events) - len(timed)
    assert found["start"].tolist() == [base + event.offset_ps // 1000 for event in timed]
    assert found["end"].tolist() == [base + (event.offset_ps + event.duration_ps) // 1000 for event in timed]
    picoseconds = [[0] * len(timed)] * 2 if found["start_ps"] is None else [found["start_ps"], found["end_ps"]]
    assert list(picoseconds[0]) == [event.offset_ps % 1000 for event in timed]
    assert list(picoseconds[1]) == [(event.offset_ps + event.duration_ps) % 1000 for event in timed]
    assert [found["metadata_ids"][place] for place in found["metadata"].tolist()] == [e.metadata_id for e in timed]
    occurred = [(row, e.num_occurrences) for row, e in enumerate(timed) if e.HasField("num_occurrences")]
    assert list(zip(found["aggregates"].tolist(), found["occurrences"].tolist(), strict=True)) == occurred
    expected: dict[tuple[int, int], list[tuple[int, Any]]] = {}
    for row, event in enumerate(timed):
        for stat in event.stats:
            if which := stat.WhichOneof("value"):
                value = getattr(stat, which)
                value = value.encode() if isinstance(value, str) else value
                expected.setdefault((stat.metadata_id, FIELD_NUMBERS[which]), []).append((row, value))
    assert stats_of(found) == expected
    several = {(one[0], one[1]): one[5] for one in found["stats"]}
    for key, values in expected.items():
        assert several[key] or len({row for row, _ in values}) == len(values)


@given(st.binary(max_size=200))
def test_property_events_as_protobuf_reads_them(content: bytes) -> None:
    """Whatever the bytes: an event that protobuf takes is the one that we see, and the other way round."""
    size = len(content)
    line = b"\x22" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7]))
    data = np.frombuffer(line + content, dtype=np.uint8)
    found = xspace_events(data, 0, len(data), 0, **LIMITS)
    try:
        event = xplane_pb2.XEvent.FromString(content)
    except Exception:
        return  # stricter than we are: UTF-8, groups
    if found["lost"]["malformed"] or found["lost"]["bad_time"]:
        return  # groups, which protobuf skips
    assert found["metadata_ids"] == [event.metadata_id]
    assert found["start"].tolist() == [event.offset_ps // 1000]
    assert found["end"].tolist() == [(event.offset_ps + event.duration_ps) // 1000]
    assert len(found["aggregates"]) == event.HasField("num_occurrences")
    counted = sum(len(values) for values in stats_of(found).values()) + found["lost"]["stat_without_value"]
    assert counted == len(event.stats)


def test_columns_of_stats_are_bounded() -> None:
    line = xplane_pb2.XLine()
    for number in range(5):
        line.events.add().stats.add(metadata_id=number, int64_value=number)
    data = np.frombuffer(line.SerializeToString(), dtype=np.uint8)
    found = xspace_events(data, 0, len(data), 0, **{**LIMITS, "stat_columns": 3})
    assert sorted(stats_of(found)) == [(0, 4), (1, 4), (2, 4)]
    assert found["lost"]["too_many_stat_names"] == 2


def test_ranges_are_checked() -> None:
    data = np.zeros(4, dtype=np.uint8)
    for first, last in ((0, 5), (3, 2)):
        with pytest.raises(IndexError):
            wire_fields(data, first, last, 2, 10)
        with pytest.raises(IndexError):
            xspace_events(data, first, last, 0, **LIMITS)


def test_many_fields_are_bounded() -> None:
    data = np.frombuffer(b"\x0a\x00" * 100, dtype=np.uint8)
    number, _, _, _, fault, full = wire_fields(data, 0, len(data), 1 << 1, 10)
    assert (len(number), fault, full) == (10, -1, True)


def test_stats_of_one_event_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "XSPACE_EVENT_STATS_MAX", 3)
    space = xplane_pb2.XSpace()
    host = plane(space, "/host:CPU", ["e"], ["n"])
    event = host.lines.add(id=1).events.add(metadata_id=1)
    for number in range(5):
        event.stats.add(metadata_id=1, int64_value=number)
    decoder, _ = decode(space.SerializeToString())
    assert decoder.findings.lost == {"too_many_stats": 2}


def test_content_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(small())
    fd = os.open(path, os.O_RDONLY)
    try:
        dictionaries: dict[str, Dictionary] = {}
        decoder = open_decoder("", fd, dictionaries, Tracks())
        assert sum(len(batch.events) for batch in decoder.batches()) == 20
    finally:
        os.close(fd)


def test_real_file(trace_data: Path) -> None:
    content = (trace_data / "gpu_multiworker_2020.xplane.pb").read_bytes()
    decoder, tables = decode(content)
    space = xplane_pb2.XSpace.FromString(content)
    assert sum(map(len, tables)) == sum(len(line.events) for plane in space.planes for line in plane.lines) == 23128
    assert decoder.findings.lost == {}
    assert decoder.findings.counted == {}
    assert [process["name"] for process in decoder.tracks.processes] == [plane.name for plane in space.planes]
    kernels = sum(int((table.columns["kind"] == Kind.KERNEL).sum()) for table in tables)
    assert kernels == sum(
        "kernel_details" in {plane.stat_metadata[stat.metadata_id].name for stat in event.stats}
        for plane in space.planes
        if plane.name.startswith("/device:")
        for line in plane.lines
        for event in line.events
    )
