"""Torch's view from stored trees, against events nested anew."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.memory import MEMORY_NAME, OUT_OF_MEMORY_NAME
from profd.errors import BadTrace
from profd.events import DeviceType, Kind
from profd.query import event_times
from profd.query.average_rows import columns_of, columns_of_sums
from profd.query.averages import Grouping, averages_of_trace
from profd.query.stored_view import stored_view
from profd.segments.reader import TraceReader

from tests.support.call_trees import SHAPES, traces
from tests.support.importing import import_trace
from tests.support.tables import Event, stored_with_tree


def both(reader: TraceReader) -> tuple[list[object], list[object]] | None:
    """(rows from the stored tree, rows of events nested anew); None where the tree does not tell."""
    sums = stored_view(reader)
    if sums is None:
        return None
    slow = columns_of(averages_of_trace(TraceReader(reader.directory), raw=False, grouping=Grouping()))
    return columns_of_sums(sums).to_pylist(), slow.to_pylist()


@given(traces(), st.sampled_from([1, 3, 100]), st.sampled_from([0, 1]))
def test_property_where_it_answers_it_is_right(events: list[Event], rows: int, gpu_events: int) -> None:
    if not events:
        return
    directory = Path(tempfile.mkdtemp())
    try:
        found = both(stored_with_tree(events, directory, rows, gpu_events=gpu_events))
    finally:
        shutil.rmtree(directory)
    if found is not None:
        assert found[0] == found[1]


def kernel(name: str, start: int, end: int, **fields: int) -> Event:
    return Event(name, start, end, Kind.KERNEL, 1, fields=fields)


JOB = [
    Event("ProfilerStep#1", 0, 200, Kind.USER_ANNOTATION, fields={"external": 1}),
    Event("aten::mm", 0, 100, fields={"external": 2, "inputs": SHAPES}),
    Event("aten::mm", 10, 90, fields={"external": 3, "inputs": SHAPES}),  # wrapped
    Event("aten::is_leaf", 12, 80, fields={"external": 4}),  # not shown
    Event("aten::add", 14, 60, fields={"external": 5, "inputs": SHAPES}),
    Event("launch", 20, 30, Kind.RUNTIME, fields={"correlation": 70}),
    Event("f", 100, 180, Kind.PYTHON_FUNCTION),
    Event("f", 110, 170, Kind.PYTHON_FUNCTION),
    Event("aten::add", 120, 130, fields={"external": 6}),
    Event("started", 125, 125, Kind.INSTANT),
    Event("waits", 140, 190, fields={"phase": ord("b"), "external": 7}),
    kernel("k", 300, 310, external=3, correlation=71),  # by its external id
    kernel("k", 310, 330, correlation=70),  # by its launch
    Event("ProfilerStep#1", 300, 330, Kind.GPU_USER_ANNOTATION, 1),
    Event("ProfilerStep#2", 400, 410, Kind.USER_ANNOTATION),
]


@pytest.mark.parametrize("rows", [2, 100])
def test_it_answers_for_what_jobs_record(tmp_path: Path, rows: int) -> None:
    found = both(stored_with_tree(JOB, tmp_path, rows, gpu_events=3))
    assert found is not None
    assert found[0] == found[1]
    device = {row["name"]: row["device_time_total_ns"] for row in columns_of_sums_of(tmp_path).to_pylist()}
    assert (device[b"aten::mm"], device[b"aten::add"], device[b"ProfilerStep*"]) == (30, 20, 30)


def columns_of_sums_of(folder: Path) -> pa.Table:
    sums = stored_view(TraceReader(folder / "t"))
    assert sums is not None
    return columns_of_sums(sums)


def test_ids_that_are_those_of_launches_name_no_ops(tmp_path: Path) -> None:
    events = [Event("a", 0, 9, fields={"external": 5}), kernel("k", 20, 30, external=5, correlation=5)]
    found = both(stored_with_tree(events, tmp_path, gpu_events=1))
    assert found is not None
    assert found[0] == found[1]
    assert found[0][0]["device_time_total_ns"] == 0  # type: ignore[index]


def test_a_backward_op_is_not_within_the_op_of_the_forward_pass(tmp_path: Path) -> None:
    events = [
        Event("forward", 0, 100, fields={"process": 0}),
        Event("aten::is_leaf", 10, 50, thread=1, fields={"fwd_thread": 0, "process": 0}),
        Event("backward", 12, 40, thread=1, fields={"process": 0}),
        Event("backward", 55, 60, thread=1, fields={"fwd_thread": 7, "process": 0}),
    ]
    events[1].fields["fwd_thread"] = 7
    reader = stored_with_tree(events, tmp_path, first_id=7)
    parent = reader.read(["parent"]).columns["parent"].tolist()
    assert parent == [-1, 0, 1, 0]
    found = both(reader)
    assert found is not None
    assert found[0] == found[1]
    assert columns_of_sums_of(tmp_path).column("self_cpu_time_total_ns").to_pylist() == [100, 33]


def test_what_encloses_a_row_may_stand_behind_it(tmp_path: Path) -> None:
    """Of equal starts, in order of the file."""
    events = [Event("c", 0, 1), Event("b", 0, 5), Event("a", 0, 20), Event("a", 0, 10)]
    events += [Event("launch", 3, 4, Kind.RUNTIME, fields={"correlation": 9}), kernel("k", 30, 40, correlation=9)]
    reader = stored_with_tree(events, tmp_path, gpu_events=1)
    assert reader.read(["parent"]).columns["parent"].tolist()[:4] == [1, 3, -1, 2]
    found = both(reader)
    assert found is not None
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(Event("crossing", 190, 210, Kind.USER_ANNOTATION), id="partial"),
        pytest.param(Event("open", 190, None), id="no-end"),
        pytest.param(Event("k", 190, None, Kind.KERNEL, 1), id="no-end-on-device"),
        pytest.param(Event("s", 410, 420, Kind.SAMPLE), id="sample"),
        pytest.param(Event("old", 410, 420, fields={"phase": ord("S")}), id="old-async"),
        pytest.param(Event("kernel", 410, 420, Kind.KERNEL, device_type=DeviceType.CPU), id="kernel-on-host"),
        pytest.param(Event("away", 410, 420, fields={"end_thread": 1}), id="ends-elsewhere"),
        pytest.param(Event(MEMORY_NAME, 410, 410, Kind.MEMORY, fields={"bytes": 4}), id="memory"),
        pytest.param(Event(OUT_OF_MEMORY_NAME, 410, 410, Kind.MEMORY), id="out-of-memory"),
        pytest.param(Event(event_times.NAME, 410, 410, Kind.COUNTER, fields={"value": 4.0}), id="cuda-events"),
    ],
)
def test_it_says_nothing_where_the_view_has_other_rules(tmp_path: Path, event: Event) -> None:
    assert both(stored_with_tree([*JOB, event], tmp_path, gpu_events=3)) is None


def test_a_column_that_is_not_as_it_was_written_is_named_by_the_long_way(tmp_path: Path) -> None:
    reader = stored_with_tree(JOB, tmp_path, gpu_events=3)
    segment = reader.directory / reader.segments[0].file
    table = pq.read_table(segment)
    number = table.schema.get_field_index("name")
    pq.write_table(table.set_column(number, "name", pa.array([b"\xff"] * len(table), pa.binary())), segment)
    assert stored_view(reader) is None
    with pytest.raises(BadTrace, match="is damaged"):
        averages_of_trace(reader, raw=False, grouping=Grouping())


@pytest.mark.parametrize("parents", [[1, 0, -1], [0, -1, -1], [-1, 1 << 40, -1]], ids=["circle", "itself", "nowhere"])
def test_parents_that_are_none_are_not_believed(tmp_path: Path, parents: list[int]) -> None:
    reader = stored_with_tree([Event("a", 0, 9), Event("b", 1, 5), Event("c", 2, 3)], tmp_path)
    segment = reader.directory / reader.segments[0].file
    table = pq.read_table(segment)
    number = table.schema.get_field_index("parent")
    pq.write_table(table.set_column(number, table.schema.field(number), pa.array(parents, pa.int64())), segment)
    assert stored_view(reader) is None


def test_columns_that_arrow_reads(tmp_path: Path) -> None:
    """Another writer's encodings."""
    reader = stored_with_tree(JOB, tmp_path, gpu_events=3)
    segment = reader.directory / reader.segments[0].file
    pq.write_table(pq.read_table(segment), segment, compression="lz4", use_dictionary=True)
    found = both(reader)
    assert found is not None
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["ddp_rank0", "cuda_alexnet", "cuda_train_rank0", "amd_minitoy", "cuda_event_sync"])
def test_real_traces(name: str, trace_data: Path, tmp_path: Path) -> None:
    file = trace_data / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"no {file}")
    import_trace(file, tmp_path / "t")
    found = both(TraceReader(tmp_path / "t"))
    assert found is not None
    assert found[0] == found[1]
