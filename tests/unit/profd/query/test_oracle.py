"""Fast averages against the slow, obvious ones, on random traces."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.events import EventTable, Kind
from profd.query.averages import Average, averages
from profd.query.recorded import recorded_stretches

from tests.support.tables import Event, table_of
from tests.support.torch_oracle import raw_table, torch_table

CALLS = st.builds(
    lambda name, start, lasting, kind, thread: Event(name, start, start + lasting, kind, thread),
    st.sampled_from(["a", "b", "c", "aten::is_leaf", "ProfilerStep#1", "ProfilerStep#2"]),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([Kind.CPU_OP, Kind.PYTHON_FUNCTION, Kind.RUNTIME]),
    st.integers(0, 1),
)
WORK = st.builds(
    lambda name, start, lasting, external: Event(
        name, start, start + lasting, Kind.KERNEL, 9, None, {"external": external}
    ),
    st.sampled_from(["k", "l"]),
    st.integers(0, 80),
    st.integers(0, 20),
    st.integers(1, 30),
)
ASIDE = st.builds(
    lambda name, start, lasting, kind: Event(name, start, start + lasting, kind),
    st.sampled_from(["a", "o"]),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sampled_from([Kind.OVERHEAD, Kind.TRACE]),
)


def as_table(rows: list[Average]) -> dict[tuple[str, str], list[int]]:
    return {
        (row.name, row.device_type): [
            row.count,
            row.cpu_time_total_ns,
            row.self_cpu_time_total_ns,
            row.device_time_total_ns,
            row.self_device_time_total_ns,
        ]
        for row in rows
    }


@given(st.lists(CALLS, max_size=25), st.lists(WORK, max_size=8))
def test_torch_view(calls: list[Event], work: list[Event]) -> None:
    for number, call in enumerate(calls):
        call.fields["external"] = number + 1
    assert as_table(averages(table_of([*calls, *work]))) == torch_table([*calls, *work])


@given(st.lists(st.one_of(CALLS, WORK, ASIDE), max_size=30))
def test_raw(events: list[Event]) -> None:
    assert as_table(averages(table_of(events), raw=True)) == raw_table(events)


@given(st.lists(st.one_of(CALLS, WORK), max_size=30), st.integers(1, 9), st.integers(0, 1))
def test_raw_does_not_depend_on_segments(events: list[Event], rows: int, hidden: int) -> None:
    table = table_of(events)
    segments = [
        EventTable({name: values[at : at + rows] for name, values in table.columns.items()}, table.dictionaries, {}, at)
        for at in range(0, len(table), rows)
    ]
    pieces = list(recorded_stretches(segments, len(table) + hidden))
    assert sum(int(calls.counted.sum()) for _, calls in pieces) == len(events)
    own: dict[str, int] = {}
    for _, calls in pieces:
        for name, value in zip(calls.name.tolist(), calls.self_cpu.tolist(), strict=True):
            own[calls.names[name]] = own.get(calls.names[name], 0) + value
    want: dict[str, int] = {}
    for (name, device), values in raw_table(events).items():
        want[name] = want.get(name, 0) + (values[2] if device == "CPU" else 0)
    assert own == want


def test_extremes_do_not_break_it() -> None:
    low, high = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
    events = [Event("wide", low + 1, high), Event("late", high - 1, high), Event("back", 50, 10)]
    for raw in (False, True):
        rows = {row.name: row for row in averages(table_of(events), raw=raw)}
        assert rows["late"].cpu_time_total_ns == 1
        assert rows["back"].cpu_time_total_ns == 0
        assert rows["wide"].count == 1
