"""Allocations, with values worked out by hand and against a slow count."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.memory import MemoryUse, usage_within
from profd.events import DeviceType, Kind
from profd.query.averages import averages
from profd.query.view import durations

from tests.support.tables import Event, table_of

CPU, CUDA = DeviceType.CPU, DeviceType.CUDA


def memory(at: int, size: int, place: DeviceType = CPU, thread: int = 0, **fields: Any) -> Event:
    return Event("[memory]", at, at, Kind.MEMORY, thread, place, {"bytes": size, "process": 0, **fields})


def call(name: str, start: int, end: int, thread: int = 0, kind: Kind = Kind.CPU_OP) -> Event:
    return Event(name, start, end, kind, thread, CPU, {"process": 0})


def test_ranges_have_what_was_allocated_while_they_were_open() -> None:
    events = [
        call("outer", 0, 100),
        call("inner", 10, 40),
        memory(0, 1),  # the first and the last ns count
        memory(20, 100),
        memory(30, 7, CUDA),
        memory(40, 1000),
        memory(60, -50),
        call("elsewhere", 55, 65, thread=1),  # of any thread of the process
        memory(200, 5),  # nothing is open: a row of its own
        Event("[OutOfMemory]", 50, 50, Kind.MEMORY, 0, CUDA, {"bytes": 10**9, "process": 0}),
    ]
    rows = {row.name: row for row in averages(table_of(events))}
    found = {
        name: (row.cpu_memory_usage, row.self_cpu_memory_usage, row.device_memory_usage, row.self_device_memory_usage)
        for name, row in rows.items()
    }
    assert found == {
        "outer": (1051, -49, 7, 0),
        "inner": (1100, 1100, 7, 7),
        "elsewhere": (-50, -50, 0, 0),
        "[memory]": (5, 5, 0, 0),
        "[OutOfMemory]": (0, 0, 0, 0),
    }


def test_a_merged_wrapper_has_what_its_call_had() -> None:
    rows = averages(table_of([call("a", 0, 100), call("a", 10, 90), call("b", 20, 30), memory(25, 8), memory(50, 4)]))
    assert {row.name: (row.cpu_memory_usage, row.self_cpu_memory_usage) for row in rows} == {"a": (12, 4), "b": (8, 8)}


def test_nothing_is_said_where_nothing_was_recorded() -> None:
    assert averages(table_of([call("a", 0, 10)]))[0].cpu_memory_usage is None
    assert MemoryUse().result() == []


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.integers(0, 60), st.integers(-9, 9), st.integers(0, 2), st.booleans()), max_size=12),
)
def test_usage_is_the_sum_by_definition(
    calls: list[tuple[int, int, int]], records: list[tuple[int, int, int, bool]]
) -> None:
    events = [
        Event("a", start, start + lasting, Kind.CPU_OP, 0, CPU, {"process": process, "bytes": None})
        for start, lasting, process in calls
    ]
    events += [memory(at, size, CPU if host else CUDA, process=process) for at, size, process, host in records]
    table = table_of(events)
    ordered = sorted(events, key=lambda event: event.start)
    rows = np.flatnonzero(table.column("kind") == Kind.CPU_OP) if events else np.empty(0, dtype=np.int64)
    if not events:
        return
    found = usage_within(table, rows, durations(table))
    for place, values in zip((CPU, CUDA), found, strict=True):
        for row in rows.tolist():
            event = ordered[row]
            wanted = sum(
                size
                for at, size, process, host in records
                if process == event.fields["process"]
                and (host == (place is CPU))
                and event.start <= at <= (event.end or 0)
            )
            assert values[row] == wanted


def test_peaks_and_devices() -> None:
    use = MemoryUse()
    use.add(table_of([memory(1, 100), memory(2, 50, CUDA, device=1, total_allocated=950, total_reserved=2000)]))
    use.add(
        table_of(
            [
                memory(3, -30),
                memory(4, 60),
                memory(5, -130),
                memory(6, 10, CUDA, device=1, total_allocated=960, total_reserved=1500),
                Event("[OutOfMemory]", 7, 7, Kind.MEMORY, 0, CUDA, {"process": 0, "device": 1, "bytes": 1}),
            ]
        )
    )
    host, card = (asdict(found) for found in use.result())
    assert host == {
        "device_type": "CPU",
        "device": None,
        "allocations": 2,
        "frees": 2,
        "allocated_bytes": 160,
        "freed_bytes": 160,
        "net_bytes": 0,
        "peak_bytes": 130,
        "peak_at_ns": 4,
        "peak_reserved_bytes": None,
        "out_of_memory": 0,
    }
    assert card == {
        "device_type": "CUDA",
        "device": 1,
        "allocations": 2,
        "frees": 0,
        "allocated_bytes": 60,
        "freed_bytes": 0,
        "net_bytes": 60,
        "peak_bytes": 960,
        "peak_at_ns": 6,
        "peak_reserved_bytes": 2000,
        "out_of_memory": 1,
    }


def test_extremes_do_not_break_it() -> None:
    low, high = int(np.iinfo(np.int64).min) + 1, int(np.iinfo(np.int64).max)
    table = table_of([call("wide", low // 2, high // 2), memory(0, 3), memory(high // 2, 4), memory(high, 8)])
    row = averages(table)[0]
    assert (row.name, row.cpu_memory_usage) == ("wide", 7)
