"""Busy and idle devices, and what their silence means."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from profd.events import DeviceType, Dictionary, EventTable, Kind
from profd.query.devices import DEVICES_MAX, Busy, BusyClock, EventCounter, EventCounts, gpu_shortfall

from tests.support.tables import Event, table_of


def kernel(start: int, end: int, device: int | None = 0, kind: Kind = Kind.KERNEL) -> Event:
    return Event("k", start, end, kind, thread=9, fields={} if device is None else {"device": device})


def test_overlap_counts_once() -> None:
    clock = BusyClock()
    clock.add(table_of([kernel(0, 10), kernel(5, 15), kernel(20, 30), kernel(22, 25), kernel(0, 40, device=1)]))
    assert clock.busy(50) == [Busy("CUDA", 0, 25, 25, 0.5), Busy("CUDA", 1, 40, 10, 0.8)]


def test_only_work_keeps_a_device_busy() -> None:
    clock = BusyClock()
    clock.add(
        table_of(
            [
                kernel(0, 50, kind=Kind.GPU_USER_ANNOTATION),
                kernel(0, 50, kind=Kind.SYNC),
                kernel(1, 2, kind=Kind.MEMCPY),
                kernel(3, 5, device=None, kind=Kind.MEMSET),
                Event("op", 0, 50),
            ]
        )
    )
    assert clock.busy(0) == [Busy("CUDA", None, 2, 0, None), Busy("CUDA", 0, 1, 0, None)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 1)), max_size=20), st.integers(1, 6))
def test_union_over_segments(spans: list[tuple[int, int, int]], rows: int) -> None:
    table = table_of([kernel(start, start + lasting, device) for start, lasting, device in spans])
    clock = BusyClock()
    for at in range(0, len(table), rows):
        columns = {name: values[at : at + rows] for name, values in table.columns.items()}
        clock.add(EventTable(columns, table.dictionaries, {}, at))
    for device in clock.busy(100):
        covered = {t for start, lasting, d in spans if d == device.device for t in range(start, start + lasting)}
        assert device.busy_ns == len(covered)
        assert device.busy_ns + device.idle_ns == 100


def test_counts() -> None:
    counter = EventCounter()
    counter.add(
        table_of(
            [
                Event("cudaLaunchKernel", 0, 1, Kind.RUNTIME),
                Event("cuLaunchKernelEx", 0, 1, Kind.DRIVER),
                Event("hipMemcpyAsync", 0, 1, Kind.RUNTIME),
                Event("cudaDeviceSynchronize", 0, 1, Kind.RUNTIME),
                Event("cudaLaunchKernel", 0, 1),  # an op of that name
                kernel(5, 6),
            ]
        )
    )
    assert counter.counts == EventCounts(launches=3, device_events=1)
    # Dictionaries grow from segment to segment.
    names = Dictionary(["other"])
    counter = EventCounter()
    for name in ("cudaLaunchKernel", "cudaMemsetAsync"):
        table = table_of([Event(name, 0, 1, Kind.RUNTIME)])
        table.columns["name"][:] = names.code(name)
        counter.add(EventTable(table.columns, {"name": names}))
    assert counter.counts == EventCounts(launches=2, device_events=0)


def test_made_up_devices_are_bounded() -> None:
    clock = BusyClock()
    clock.add(table_of([kernel(0, 10, device) for device in range(DEVICES_MAX + 50)]))
    assert len(clock.busy(10)) == DEVICES_MAX


def test_launches_without_records_are_explained() -> None:
    text = gpu_shortfall(EventCounts(1234, 0))
    assert text is not None
    assert text.startswith("1,234 launches")
    assert gpu_shortfall(EventCounts(5, 5)) is None
    assert gpu_shortfall(EventCounts()) is None


def test_other_devices_have_their_name() -> None:
    clock = BusyClock()
    clock.add(table_of([Event("k", 0, 5, Kind.KERNEL, 9, DeviceType.HIP, {"device": 2})]))
    assert clock.busy(10) == [Busy("HIP", 2, 5, 5, 0.5)]
