"""Perfetto's protobuf: read with Perfetto's own generated classes and replayed as its importer does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import Kind, Tracks

from tests.support.tables import Event, store, table_of
from tests.unit.profd.export.exported import exported

pb = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs the package perfetto (extra: test)"
)
TRACKS = Tracks(
    processes=[{"id": 42, "name": "python", "labels": "CPU"}, {"id": 0, "name": "python", "labels": "GPU 0"}],
    threads=[{"id": 43, "process": 0, "name": "main"}, {"id": 7, "process": 1, "name": "stream 7"}],
)
# (track names from the root, name, start, end or None, arguments)
Slice = tuple[tuple[str, ...], str, int, int | None]


class Replayed:
    """Packets as the importer sees them: sorted by time, stable; strings by their ids."""

    def __init__(self, data: bytes) -> None:
        trace = pb.Trace.FromString(data)
        assert trace.packet[0].trusted_packet_sequence_id == 1
        self.slices: list[Slice] = []
        self.instants: list[tuple[tuple[str, ...], str, int]] = []
        self.counters: list[tuple[tuple[str, ...], int, float]] = []
        self.args: dict[str, dict[str, Any]] = {}
        self.flows: dict[str, tuple[list[int], list[int]]] = {}
        self._tracks: dict[int, tuple[str, ...]] = {0: ()}
        self._words: dict[str, dict[int, str]] = {"name": {}, "key": {}, "string": {}, "cat": {}}
        self._open: dict[int, list[tuple[str, int]]] = {}
        cleared = False
        events = []
        for packet in trace.packet:
            cleared |= bool(packet.sequence_flags & 1)
            self._take(packet)
            if packet.HasField("track_event"):
                assert cleared
                assert packet.sequence_flags & 2
                events.append(self._event(packet.timestamp, packet.track_event))
        for time, event, name in sorted(events, key=lambda event: event[0]):
            self._replay(time, event, name)
        for track, stack in self._open.items():
            self.slices += [(self._tracks[track], name, start, None) for name, start in stack]
        self.slices.sort(key=lambda found: (found[2], found[1], str(found[3])))

    def _take(self, packet: Any) -> None:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            name = track.process.process_name or track.thread.thread_name or track.name
            parent = self._tracks[track.parent_uuid]
            if track.HasField("thread"):
                parent = (f"pid {track.thread.pid}",)
                name = f"{name} {track.thread.tid}"
            assert track.uuid not in self._tracks
            self._tracks[track.uuid] = (*parent, name)
        data = packet.interned_data
        for kind, entries in (
            ("name", data.event_names),
            ("key", data.debug_annotation_names),
            ("cat", data.event_categories),
        ):
            self._words[kind] |= {entry.iid: entry.name for entry in entries}
        self._words["string"] |= {entry.iid: entry.str.decode() for entry in data.debug_annotation_string_values}

    def _event(self, time: int, event: Any) -> tuple[int, Any, str]:
        name = self._words["name"][event.name_iid] if event.name_iid else ""
        for note in event.debug_annotations:
            kind = note.WhichOneof("value")
            value = getattr(note, kind)
            shown = self._words["string"][value] if kind == "string_value_iid" else value
            self.args.setdefault(name, {})[self._words["key"][note.name_iid]] = shown
        if event.flow_ids or event.terminating_flow_ids:
            self.flows[name] = (list(event.flow_ids), list(event.terminating_flow_ids))
        return time, event, name

    def _replay(self, time: int, event: Any, name: str) -> None:
        track = self._tracks[event.track_uuid]
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            self._open.setdefault(event.track_uuid, []).append((name, time))
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            begun, start = self._open[event.track_uuid].pop()
            self.slices.append((track, begun, start, time))
        elif event.type == pb.TrackEvent.TYPE_COUNTER:
            self.counters.append((track, time, event.double_counter_value))
        else:
            self.instants.append((track, name, time))


def replayed(path: Path, **args: Any) -> Replayed:
    return Replayed(exported(path, "perfetto", **args)[1])


CPU = ("pid 42", "main 43")
STREAM = ("python (GPU 0)", "stream 7")


def test_threads_streams_marks_and_counters(tmp_path: Path) -> None:
    rows = [
        Event("step", 1000, 2000, Kind.USER_ANNOTATION, fields={"cat": "user_annotation"}),
        Event("op", 1000, 1500, fields={"inputs": '{"Input Dims": [[2, 3]]}', "external": 5, "stack": "a;b"}),
        Event("launch", 1100, 1120, Kind.RUNTIME),
        Event("kernel", 1200, 1900, Kind.KERNEL, thread=1, fields={"linked": 2, "stream": 7}),
        Event("mark", 1300, 1300, Kind.INSTANT),
        Event("memory", 1310, 1310, Kind.COUNTER, fields={"value": 2.5}),
        Event("open", 1600, None),
    ]
    count, data = exported(store(table_of(rows), tmp_path / "t", rows=3, tracks=TRACKS), "perfetto")
    found = Replayed(data)
    assert count == 7
    assert found.slices == [
        (CPU, "op", 1000, 1500),
        (CPU, "step", 1000, 2000),
        (CPU, "launch", 1100, 1120),
        (STREAM, "kernel", 1200, 1900),
        ((*CPU, "overlapping 1"), "open", 1600, None),
    ]
    assert found.instants == [(CPU, "mark", 1300)]
    assert found.counters == [(("python (CPU)", "memory"), 1310, 2.5)]
    assert found.args["op"] == {"Input Dims": "[[2, 3]]", "External id": 5, "Call stack": "a;b"}
    assert found.args["kernel"] == {"stream": 7}
    # The launch starts the flow that the kernel ends.
    assert found.flows["launch"][0] == found.flows["kernel"][1] != []


def test_what_overlaps_lies_beside(tmp_path: Path) -> None:
    rows = [Event("a", 0, 50), Event("b", 40, 90), Event("c", 60, 70), Event("d", 80, 100)]
    found = replayed(store(table_of(rows), tmp_path / "t", tracks=TRACKS))
    beside = (*CPU, "overlapping 1")
    assert found.slices == [(CPU, "a", 0, 50), (beside, "b", 40, 90), (CPU, "c", 60, 70), (CPU, "d", 80, 100)]


def test_a_part_of_it(tmp_path: Path) -> None:
    rows = [Event("a", 0, 100), Event("b", 10, 20), Event("c", 30, 60)]
    path = store(table_of(rows), tmp_path / "t", tracks=TRACKS)
    assert [found[1] for found in replayed(path, from_ns=25).slices] == ["a", "c"]
    assert [found[1] for found in replayed(path, min_duration_ns=30).slices] == ["a", "c"]


def test_times_before_1970_and_odd_names(tmp_path: Path) -> None:
    found = replayed(store(table_of([Event("a\ud800", -50, 5)]), tmp_path / "t", tracks=TRACKS))
    assert found.slices == [(CPU, "a?", 0, 55)]


def test_an_empty_trace(tmp_path: Path) -> None:
    assert replayed(store(table_of([]), tmp_path / "t")).slices == []


EVENTS = st.builds(
    lambda name, start, lasting, thread: Event(name, start, start + lasting, thread=thread),
    st.sampled_from("abc"),
    st.integers(0, 50),
    st.integers(0, 30),
    st.integers(0, 1),
)


@given(rows=st.lists(EVENTS, max_size=20))
def test_no_slice_is_lost_or_changed(rows: list[Event], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = store(table_of(rows), tmp_path_factory.mktemp("random") / "t", rows=7, tracks=TRACKS)
    found = sorted((track[1], name, start, end) for track, name, start, end in replayed(path).slices)
    assert found == sorted((("main 43", "stream 7")[row.thread], row.name, row.start, row.end) for row in rows)
