"""The rows that `backward` and `tensors` count, against the whole trace at once."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.autograd import AUTOGRAD_COLUMNS, find_links
from profd.derive.tensors import TENSOR_ARGS, TENSOR_COLUMNS, find_tensors
from profd.errors import Exhausted
from profd.events import ArgColumn, Dictionary, EventTable, Flows, Kind, Tracks
from profd.query.arrow import backward_arrow
from profd.query.arrow_args import tensors_arrow
from profd.segments.reader import TraceReader
from profd.tree.forward import EVALUATE_PREFIX

from tests.support.tables import Event, store, table_of

TRACKS = Tracks([{"id": 1}], [{"id": number, "process": 0} for number in (9, 1, 2)])
OPS = st.builds(
    lambda name, start, lasting, thread, kind, sequence, fwd_thread: Event(
        name,
        start,
        start + lasting,
        kind,
        thread,
        fields={"process": 0, "sequence": sequence, "fwd_thread": fwd_thread},
    ),
    st.sampled_from(["x", "y", "MulBackward0", EVALUATE_PREFIX + "MulBackward0"]),
    st.integers(0, 30),
    st.integers(0, 5),
    st.integers(-1, 2),
    st.sampled_from([*[Kind.CPU_OP] * 4, Kind.RUNTIME]),
    st.one_of(st.none(), st.integers(-1, 3)),
    st.sampled_from([None, 0, 1, 2, 7]),
)
FLOWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("sf"), st.integers(-1, 24)), max_size=8)


class WithFlows(TraceReader):
    """A trace whose flow records are made up."""

    made_up: Flows

    def flows(self, categories: Collection[str] | None = None) -> Flows:
        return self.made_up


def flows_of(records: list[tuple[int, str, int]]) -> Flows:
    """`(id, phase, row)` of flows of the first category."""
    count = len(records)
    zeros = np.zeros(count, dtype=np.int64)
    columns = dict.fromkeys(Flows.__dataclass_fields__, zeros)
    ids, phases, rows = zip(*records, strict=True) if records else ((), (), ())
    columns["id"], columns["row"] = np.array(ids, dtype=np.int64), np.array(rows, dtype=np.int64)
    columns["phase"] = np.array([ord(phase) for phase in phases], dtype=np.uint8)
    return Flows(**columns)


@given(st.lists(OPS, min_size=1, max_size=25), FLOWS, st.sampled_from([1, 4, 100]))
def test_property_backward_ops_as_of_the_whole(
    events: list[Event], records: list[tuple[int, str, int]], rows: int
) -> None:
    records = [(number, phase, row) for number, phase, row in records if row < len(events)]
    with tempfile.TemporaryDirectory() as folder:
        table = table_of(events)
        cat = Dictionary()
        cat.code("fwdbwd")
        table.dictionaries["cat"] = cat
        table.columns["cat"] = np.zeros(len(table), dtype=np.int32)
        reader = WithFlows(store(table, Path(folder) / "t", rows=rows, tracks=TRACKS))
        reader.made_up = flows_of(records)
        found = backward_arrow(reader).to_pydict()
        links = find_links(reader.read([*AUTOGRAD_COLUMNS, "cat"], args=False), reader.made_up, TRACKS)
        backward = np.flatnonzero(links.backward)
        forward = [None if row < 0 else row for row in links.forward_row[backward].tolist()]
        assert found == {"row": backward.tolist(), "forward_row": forward}


TENSOR_ROWS = st.lists(
    st.one_of(
        st.tuples(st.just("memory"), st.sampled_from([64, -64, None]), st.sampled_from([16, 32, None])),
        st.tuples(
            st.just("op"),
            st.lists(st.integers(0, 3), max_size=3),
            st.lists(st.sampled_from([0, 16, 32]), max_size=3),
        ),
    ),
    min_size=1,
    max_size=20,
)


def tensor_table(given_rows: list[tuple]) -> EventTable:
    events, lists = [], {key: ([], []) for key in TENSOR_ARGS}
    for number, (what, first, second) in enumerate(given_rows):
        if what == "memory":
            fields = {"bytes": first, "ptr": second, "process": 0}
            events.append(Event("[memory]", number, number, Kind.MEMORY, fields=fields))
        else:
            events.append(Event("mul", number, number + 5, fields={"process": 0}))
            for key, values in zip(TENSOR_ARGS, (first, second), strict=True):
                lists[key][0].extend([number] * len(values))
                lists[key][1].extend(values)
    table = table_of(events)
    for key, (at, values) in lists.items():
        if at:
            table.args[key, "ints"] = ArgColumn("ints", np.array(at, dtype=np.int64), np.array(values, dtype=np.int64))
    return table


@given(TENSOR_ROWS, st.sampled_from([1, 3, 100]))
def test_property_tensors_as_of_the_whole(given_rows: list[tuple], rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader = TraceReader(store(tensor_table(given_rows), Path(folder) / "t", rows=rows))
        found = tensors_arrow(reader).to_pydict()
        want = find_tensors(reader.read(TENSOR_COLUMNS, args=TENSOR_ARGS))
        assert found["row"] == want.row.tolist()
        assert [-1 if one is None else one for one in found["tensor"]] == want.tensor.tolist()
        assert [0 if one is None else one for one in found["impl"]] == want.impl.tolist()


def test_what_counts_has_a_limit_and_not_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Event("mul", 0, 5, fields={"process": 0, "sequence": 3})
    backward = Event("MulBackward0", 500, 505, fields={"process": 0, "sequence": 3, "fwd_thread": 9})
    others = [Event("add", n, n + 1, fields={"process": 0}) for n in range(10, 400)]
    reader = TraceReader(store(table_of([forward, *others, backward]), tmp_path / "t", rows=7, tracks=TRACKS))
    monkeypatch.setattr("profd.query.whole.QUERY_ROWS_MAX", 2)
    assert backward_arrow(reader).to_pydict() == {"row": [391], "forward_row": [0]}
    assert tensors_arrow(reader).num_rows == 0
    monkeypatch.setattr("profd.query.whole.QUERY_ROWS_MAX", 1)
    with pytest.raises(Exhausted, match="needs 2 events at once"):
        backward_arrow(reader)
