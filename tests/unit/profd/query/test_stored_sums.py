"""Sums of the self times that are stored, against events nested anew."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadTrace
from profd.events import DeviceType, Kind
from profd.query.average_rows import columns_of, columns_of_sums
from profd.query.averages import Grouping, averages_of_trace
from profd.query.stored_sums import stored_sums
from profd.segments.reader import TraceReader

from tests.support.tables import Event, stored_with_tree

SHAPES = json.dumps({"Input Dims": [[4, 8], [8, 2]]})
CALLS = st.builds(
    lambda name, start, lasting, kind, thread, device, fields: Event(
        name, start, start + lasting, kind, thread, device, fields
    ),
    st.sampled_from(["a", "b", "aten::mm", "aten::add", "\ud800"]),
    st.integers(0, 20),
    st.sampled_from([0, 1, 2, 5, 9]),
    st.sampled_from([kind for kind in Kind if kind not in (Kind.PYTHON_FUNCTION, Kind.SAMPLE)]),
    st.integers(-1, 1),
    st.sampled_from([DeviceType.CPU, DeviceType.CPU, DeviceType.CPU, DeviceType.OTHER, DeviceType.CUDA]),
    st.sampled_from([{}, {}, {"inputs": SHAPES}, {"phase": ord("b")}, {"phase": ord("S")}, {"is_async": 1}]),
)


def both(reader: TraceReader) -> tuple[list[object], list[object]] | None:
    """(sums of stored times, sums of events nested anew), in one order; None where the stored ones say nothing."""
    sums = stored_sums(reader)
    if sums is None:
        return None
    tables = columns_of_sums(sums), columns_of(averages_of_trace(reader, raw=True, grouping=Grouping()))
    quick, slow = (sorted(table.to_pylist(), key=lambda row: (row["name"], row["device_type"])) for table in tables)
    return quick, slow


@given(st.lists(CALLS, min_size=1, max_size=6), st.sampled_from([1, 3, 100]))
def test_where_they_answer_they_are_right(events: list[Event], rows: int) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        found = both(stored_with_tree(events, directory, rows))
    finally:
        shutil.rmtree(directory)
    if found is not None:
        assert found[0] == found[1]


CALL = Event("aten::mm", 0, 100, fields={"inputs": SHAPES})
NESTED = [
    CALL,
    Event("aten::add", 10, 40, fields={"inputs": SHAPES}),
    Event("launch", 20, 30, Kind.RUNTIME),
    Event("range", 50, 60, Kind.USER_ANNOTATION),
    Event("started", 55, 55, Kind.INSTANT),
    Event("kernel", 60, 90, Kind.KERNEL, 1),
    Event("range", 60, 95, Kind.GPU_USER_ANNOTATION, 1),
    Event("aten::mm", 120, 130, fields={"phase": ord("b")}),
]


@pytest.mark.parametrize("rows", [2, 100])
def test_they_answer_for_what_jobs_record(tmp_path: Path, rows: int) -> None:
    found = both(stored_with_tree(NESTED, tmp_path, rows))
    assert found is not None
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(Event("crossing", 90, 110), id="partial"),
        pytest.param(Event("open", 90, None), id="no-end"),
        pytest.param(Event("f", 10, 20, Kind.PYTHON_FUNCTION), id="function"),
        pytest.param(Event("s", 10, 20, Kind.SAMPLE), id="sample"),
        pytest.param(Event("old", 10, 20, fields={"phase": ord("S")}), id="old-async"),
        pytest.param(Event("other", 10, 20, device_type=DeviceType.OTHER), id="no-device"),
        pytest.param(Event("mark", 10, 20, Kind.INSTANT), id="long-mark"),
        pytest.param(Event("kernel", 10, 20, Kind.KERNEL, device_type=DeviceType.CPU), id="kernel-on-host"),
        pytest.param(Event("away", 10, 20, fields={"end_thread": 1}), id="ends-elsewhere"),
    ],
)
def test_they_say_nothing_where_trees_differ(tmp_path: Path, event: Event) -> None:
    assert both(stored_with_tree([CALL, event], tmp_path)) is None


def test_a_column_that_is_not_as_it_was_written_is_named_by_the_long_way(tmp_path: Path) -> None:
    reader = stored_with_tree([CALL], tmp_path)
    segment = reader.directory / reader.segments[0].file
    table = pq.read_table(segment)
    number = table.schema.get_field_index("name")
    pq.write_table(table.set_column(number, "name", pa.array([b"\xff"], pa.binary())), segment)
    assert stored_sums(reader) is None
    with pytest.raises(BadTrace, match="is damaged"):
        averages_of_trace(reader, raw=True, grouping=Grouping())
