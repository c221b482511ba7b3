"""`profctl gpu` on a trace small enough to be worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd.errors import Exhausted
from profd.events import NO_END, Kind
from profd.query import device_work, gpu, open_trace
from profd.query.device_work import SPAN_MAX_NS
from profd.segments.reader import TraceReader

from tests.support.importing import import_trace
from tests.support.tables import Event, store, table_of


def work(name: str, start: int, end: int, stream: int, linked: int | None = None, **more: Any) -> Event:
    kind = more.pop("kind", Kind.KERNEL)
    return Event(name, start, end, kind, 90 + stream, fields={"device": 0, "stream": stream, "linked": linked, **more})


def call(start: int, correlation: int, name: str = "cudaLaunchKernel") -> Event:
    return Event(name, start, start + 2, Kind.RUNTIME, fields={"correlation": correlation})


# Window 0 to 200.    0   10  20  30  40  50  60  70 ...                     Calls are rows 1 to 4, in start order.
#   stream 7              |a-----------|   |b----|                           a 20..50, b 60..80
#   stream 8                    |copy-----|                                  c 40..65
#   later, stream 7                                    d 150..160, launched at 100; e 170..180 from before
EVENTS = [
    Event("aten::mm", 0, 200),
    call(10, 1),
    call(15, 2),
    call(30, 3, "cudaMemcpyAsync"),
    call(100, 4),
    work("a", 20, 50, 7, 1, correlation=1),
    work("Memcpy HtoD", 40, 65, 8, 3, correlation=3, kind=Kind.MEMCPY, bytes=5000),
    work("b", 60, 80, 7, 2, correlation=2),
    work("d", 150, 160, 7, 4, correlation=4),
    work("e", 170, 180, 7, None, correlation=77),  # its launch was before the window
    Event("shadow", 0, 200, Kind.GPU_USER_ANNOTATION, 97, fields={"device": 0, "stream": 7}),
    Event("Stream Sync", 0, 200, Kind.SYNC, 97, fields={"device": 0, "stream": 7}),
]
# Row numbers as stored: in start order, ties as given.
ROWS = {event.name + str(event.start): row for row, event in enumerate(sorted(EVENTS, key=lambda one: one.start))}


def stored(tmp_path: Path, rows: int = 1 << 19) -> dict[str, Any]:
    table = table_of(EVENTS)
    named = {1: "cudaLaunchKernel10", 2: "cudaLaunchKernel15", 3: "cudaMemcpyAsync30", 4: "cudaLaunchKernel100"}
    linked = table.columns["linked"]
    table.columns["linked"] = linked.copy()
    for index, number in enumerate(linked.tolist()):
        if number in named:
            table.columns["linked"][index] = ROWS[named[number]]
    return open_trace(store(table, tmp_path / "t", rows=rows, start_ns=0, end_ns=200)).gpu()


@pytest.mark.parametrize("rows", [2, 1000])
def test_worked_by_hand(rows: int, tmp_path: Path) -> None:
    answer = stored(tmp_path, rows)
    assert (answer["window_ns"], answer["message"], answer["streams_left_out"]) == (200, None, 0)
    [device] = answer["devices"]
    assert device == {
        "device_type": "CUDA",
        "device": 0,
        "busy_ns": 80,  # 20..80, 150..160, 170..180
        "idle_ns": 120,
        "busy_share": 0.4,
        "overlap_ns": 15,  # 40..50, 60..65
        "kernel_ns": 70,  # 20..50, 60..80, 150..160, 170..180
        "copy_ns": 25,
        "exposed_copy_ns": 10,  # 50..60
        "idle_waiting_ns": 60,  # 10..20 for a and b, 100..150 for d
        "idle_empty_ns": 60,
        "launch_delay_p50_ns": 10,  # of 10 (a), 10 (copy), 45 (b), 50 (d)
        "launch_delay_p95_ns": 50,
        "launch_delay_max_ns": 50,
    }
    first, second = answer["streams"]
    assert first == {
        "device_type": "CUDA",
        "device": 0,
        "stream": 7,
        "kernels": 4,
        "copies": 0,
        "fills": 0,
        "busy_ns": 70,
        "idle_ns": 130,
        "busy_share": 0.35,
        "overlap_ns": 15,
        "queue_max": 2,  # 15..20: a and b
        "queue_mean": (10 + 45 + 50) / 200,
        "launch_delay_p50_ns": 45,
        "launch_delay_p95_ns": 50,
        "launch_delay_max_ns": 50,
    }
    assert (second["stream"], second["copies"], second["busy_ns"], second["overlap_ns"]) == (8, 1, 25, 15)
    [copies] = answer["copies"]
    assert (copies["name"], copies["bytes"], copies["duration_ns"]) == ("Memcpy HtoD", 5000, 25)
    assert copies["bytes_per_second"] == 200e9
    assert answer["links"] == {"device_events": 5, "linked": 4, "stated": 4, "share": 1.0}


def test_device_time_of_operators(tmp_path: Path) -> None:
    # As in `profctl top`: e has no launch in the trace and belongs to nobody.
    assert stored(tmp_path)["ops"] == [
        {"name": "aten::mm", "count": 1, "self_device_time_total_ns": 85, "device_time_total_ns": 85}
    ]


def test_a_stated_link_that_was_not_made_is_told(tmp_path: Path) -> None:
    events = [call(10, 1), work("a", 20, 50, 7, None, correlation=1), work("b", 60, 70, 7, None)]
    answer = open_trace(store(table_of(events), tmp_path / "t", start_ns=0, end_ns=100)).gpu()
    assert answer["links"] == {"device_events": 2, "linked": 0, "stated": 1, "share": 0.0}
    assert answer["devices"][0]["launch_delay_p50_ns"] is None
    assert answer["streams"][0]["queue_max"] == 0


@pytest.mark.parametrize(("of_work", "stated"), [(0, 1), (1, 0), (2, 1)])
def test_a_call_of_another_process_is_not_the_one_that_work_names(tmp_path: Path, of_work: int, stated: int) -> None:
    # Processes 0 and 1 make calls; 2 is what Kineto calls the device.
    calls = [
        Event("cudaLaunchKernel", 10 + at, 12, Kind.RUNTIME, at, fields={"correlation": 1 + at, "process": at})
        for at in (0, 1)
    ]
    events = [*calls, work("a", 20, 50, 7, None, correlation=1, process=of_work)]
    answer = open_trace(store(table_of(events), tmp_path / "t", start_ns=0, end_ns=100)).gpu()
    assert answer["links"]["stated"] == stated


def test_clocks_that_disagree_make_no_delay_negative(tmp_path: Path) -> None:
    events = [call(30, 1), work("a", 20, 50, 7, 1, correlation=1)]
    answer = open_trace(store(table_of(events), tmp_path / "t", start_ns=0, end_ns=100)).gpu()
    assert answer["devices"][0]["launch_delay_max_ns"] == 0


def test_no_device_at_all(tmp_path: Path) -> None:
    answer = open_trace(store(table_of([Event("op", 0, 10)]), tmp_path / "t", start_ns=0, end_ns=10)).gpu()
    assert answer["message"] == gpu.NO_WORK
    assert (answer["devices"], answer["streams"], answer["ops"]) == ([], [], [])
    assert answer["links"]["share"] is None


def test_made_up_streams_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "STREAMS_MAX", 3)
    events = [work("k", 10 * number, 10 * number + 5, number, None) for number in range(5)]
    answer = open_trace(store(table_of(events), tmp_path / "t", start_ns=0, end_ns=100)).gpu()
    assert (len(answer["streams"]), answer["streams_left_out"]) == (3, 2)
    assert answer["devices"][0]["busy_ns"] == 25  # all of them


def test_work_on_further_streams_is_that_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "STREAMS_MAX", 2)
    events = [work("k", number, 10, number, None) for number in range(4)]
    answer = open_trace(store(table_of(events), tmp_path / "t", start_ns=0, end_ns=10)).gpu()
    assert [stream["overlap_ns"] for stream in answer["streams"]] == [9, 9]  # 1..10
    assert answer["devices"][0]["overlap_ns"] == 9


def test_made_up_copies_are_bounded_and_the_longest_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "COPIES_MAX", 2)
    events = [work(f"copy {n}", 0, n, 7, None, kind=Kind.MEMCPY) for n in range(5)]
    answer = open_trace(store(table_of(events), tmp_path / "t", start_ns=0, end_ns=10)).gpu()
    assert [copies["name"] for copies in answer["copies"]] == ["copy 4", "copy 3"]
    assert answer["copies_left_out"] == 3


def test_times_and_bytes_whose_sums_go_around(tmp_path: Path) -> None:
    low, high = NO_END + 1, (1 << 63) - 1
    events = [
        work("k", low, high, 7, None),
        work("copy", low, high, 8, None, kind=Kind.MEMCPY, bytes=high),
        work("copy", 0, high, 8, None, kind=Kind.MEMCPY, bytes=high),
        work("late", high - 1, high, 7, None),
    ]
    answer = open_trace(store(table_of(events), tmp_path / "t")).gpu()
    [device], [copies] = answer["devices"], answer["copies"]
    assert (device["busy_ns"], device["overlap_ns"]) == (SPAN_MAX_NS, SPAN_MAX_NS)
    assert device["idle_ns"] == high - low - SPAN_MAX_NS
    assert (copies["bytes"], copies["duration_ns"]) == (2 * high, SPAN_MAX_NS)


def test_the_mean_of_equal_samples_is_that_sample(tmp_path: Path) -> None:
    sample = {"ph": "C", "cat": "gpu_metric", "name": "power_watts", "pid": "GPU 0", "args": {"value": 350.5}}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [{**sample, "ts": n} for n in range(13)]}))
    import_trace(tmp_path / "t.json", tmp_path / "t")
    [metric] = open_trace(tmp_path / "t").gpu()["metrics"]
    assert (metric["samples"], metric["mean"]) == (13, 350.5)


def test_samples_that_no_gpu_has(tmp_path: Path) -> None:
    values = ["1e308", "1e308", "1e999", "-1e999"]
    head = '{"ph": "C", "cat": "gpu_metric", "name": "power_watts", "pid": "GPU 0"'
    events = ",".join(f'{head}, "ts": {n}, "args": {{"value": {value}}}}}' for n, value in enumerate(values))
    (tmp_path / "t.json").write_text(f'{{"traceEvents": [{events}]}}')
    import_trace(tmp_path / "t.json", tmp_path / "t")
    assert open_trace(tmp_path / "t").gpu()["metrics"] == [
        {"track": "GPU 0", "name": "power_watts", "samples": 2, "mean": 1e308, "min": 1e308, "max": 1e308}
    ]


def test_a_large_trace_has_the_same_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = stored(tmp_path / "a")
    monkeypatch.setattr(limits, "QUERY_ROWS_MAX", 3)
    assert stored(tmp_path / "b") == told
    assert told["ops"]


def test_too_much_work_for_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_work, "DEVICE_WORK_MAX", 4)
    with pytest.raises(Exhausted, match="more than 4 kernels, copies and fills"):
        stored(tmp_path, rows=3)


TIMES = st.tuples(st.integers(0, 60), st.integers(0, 20))
WORK = st.tuples(TIMES, st.integers(0, 2), st.integers(0, 1), st.sampled_from((Kind.KERNEL, Kind.MEMCPY)))


@given(st.lists(WORK, max_size=14), st.lists(st.integers(0, 60), max_size=8), st.data())
def test_property_in_windows_as_at_once(
    tmp_path_factory: pytest.TempPathFactory,
    done: list[tuple[tuple[int, int], int, int, Kind]],
    calls: list[int],
    data: st.DataObject,
) -> None:
    rows = len(done) + len(calls)
    events = [call(start, number % 3, "cudaLaunchKernel") for number, start in enumerate(calls)]
    for (start, lasts), stream, device, kind in done:
        linked, correlation = data.draw(st.integers(-1, rows)), data.draw(st.integers(-1, 4))
        fields = {"linked": linked, "correlation": correlation, "device": device, "process": device}
        events.append(work("w", start, start + lasts, stream, kind=kind, **fields))
    directory = tmp_path_factory.mktemp("t")
    table = table_of(events)
    whole = gpu.gpu_of_trace(TraceReader(store(table, directory / "whole", start_ns=0, end_ns=90)))
    assert [device["busy_ns"] for device in whole["devices"]] == [
        len({time for (start, lasts), _, one, _ in done if one == number for time in range(start, start + lasts)})
        for number in (0, 1)
        if any(one == number for _, _, one, _ in done)
    ]
    cut = TraceReader(store(table, directory / "cut", rows=data.draw(st.integers(1, 5)), start_ns=0, end_ns=90))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "SWEEP_ROWS", data.draw(st.integers(1, 3)))
        patch.setattr(device_work, "_PAIRS_HELD", 1)
        assert gpu.gpu_of_trace(cut) == whole
