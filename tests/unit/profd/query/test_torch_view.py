"""The view of torch's tables, on cases worked out by hand. Times in ns."""

from __future__ import annotations

import pytest
from profd.events import DeviceType, Kind
from profd.query import event_times, rules
from profd.query.averages import averages

from tests.support.symbols import doubling
from tests.support.tables import Event, table_of


def top(*events: Event) -> dict[tuple[str, str], tuple[int, int, int, int, int]]:
    """(name, device) -> count, CPU total, self CPU, device total, self device; names must not repeat."""
    rows = averages(table_of(events))
    found = {
        (row.name, row.device_type): (
            row.count,
            row.cpu_time_total_ns,
            row.self_cpu_time_total_ns,
            row.device_time_total_ns,
            row.self_device_time_total_ns,
        )
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def kernel(name: str, start: int, end: int, **fields: int) -> Event:
    return Event(name, start, end, Kind.KERNEL, thread=9, fields=fields)


def op(name: str, start: int, end: int, **fields: int) -> Event:
    return Event(name, start, end, fields=fields)


def test_children_are_taken_from_self_time() -> None:
    assert top(op("a", 0, 100), op("b", 10, 30), op("b", 30, 60), op("c", 35, 40)) == {
        ("a", "CPU"): (1, 100, 50, 0, 0),
        ("b", "CPU"): (2, 50, 45, 0, 0),
        ("c", "CPU"): (1, 5, 5, 0, 0),
    }


def test_threads_do_not_nest_in_each_other() -> None:
    assert top(op("a", 0, 100), Event("b", 10, 30, thread=1)) == {
        ("a", "CPU"): (1, 100, 100, 0, 0),
        ("b", "CPU"): (1, 20, 20, 0, 0),
    }


def test_an_only_child_of_the_same_name_is_merged() -> None:
    assert top(op("a", 0, 100), op("a", 10, 90), op("b", 20, 50)) == {
        ("a", "CPU"): (1, 100, 70, 0, 0),
        ("b", "CPU"): (1, 30, 30, 0, 0),
    }


def test_a_chain_of_wrappers_collapses_into_its_top() -> None:
    assert top(op("a", 0, 100), op("a", 10, 90), op("a", 20, 80), op("b", 30, 50), op("c", 50, 60)) == {
        ("a", "CPU"): (1, 100, 70, 0, 0),
        ("b", "CPU"): (1, 20, 20, 0, 0),
        ("c", "CPU"): (1, 10, 10, 0, 0),
    }


def test_of_two_children_none_is_merged() -> None:
    assert top(op("a", 0, 100), op("a", 10, 40), op("b", 50, 60)) == {
        ("a", "CPU"): (2, 130, 90, 0, 0),
        ("b", "CPU"): (1, 10, 10, 0, 0),
    }


def test_a_wrapper_takes_the_kernels_of_what_it_wraps_and_loses_its_own() -> None:
    rows = top(
        op("a", 0, 100, external=1),
        op("a", 10, 90, external=2),
        kernel("k1", 200, 207, external=1),
        kernel("k2", 210, 225, external=2),
    )
    assert rows["a", "CPU"] == (1, 100, 100, 15, 15)
    assert rows["k1", "CUDA"] == (1, 0, 0, 7, 7)


def test_utility_ops_are_left_out_and_their_children_move_up() -> None:
    assert top(op("a", 0, 100), op("profiler::_record_function_enter_new", 10, 50), op("b", 20, 30)) == {
        ("a", "CPU"): (1, 100, 90, 0, 0),
        ("b", "CPU"): (1, 10, 10, 0, 0),
    }


@pytest.mark.parametrize("name", ["aten::is_leaf", "aten::output_nr", "aten::_version"])
def test_each_utility_op(name: str) -> None:
    assert top(op(name, 0, 10)) == {}


def test_steps_are_one_row() -> None:
    steps = [Event(f"ProfilerStep#{n}", 100 * n, 100 * n + 80, Kind.USER_ANNOTATION) for n in range(3)]
    assert top(*steps) == {("ProfilerStep*", "CPU"): (3, 240, 240, 0, 0)}


def test_a_trace_that_has_the_folded_name_already() -> None:
    steps = [
        Event(name, at, at + 5, Kind.USER_ANNOTATION) for at, name in ((0, "ProfilerStep*"), (10, "ProfilerStep#1"))
    ]
    assert top(*steps) == {("ProfilerStep*", "CPU"): (2, 10, 10, 0, 0)}


def test_an_annotation_stays_apart_from_an_op_of_its_name() -> None:
    rows = averages(table_of([Event("x", 0, 10, Kind.USER_ANNOTATION), Event("x", 20, 30)]))
    assert [(row.name, row.count) for row in rows] == [("x", 1), ("x", 1)]


def test_python_functions_count_and_nest() -> None:
    assert top(Event("f.py(1): f", 0, 50, Kind.PYTHON_FUNCTION), op("a", 10, 20)) == {
        ("f.py(1): f", "CPU"): (1, 50, 40, 0, 0),
        ("a", "CPU"): (1, 10, 10, 0, 0),
    }


def test_partial_overlap_is_not_nesting() -> None:
    # b starts in a and outlives it: c lies in both, and is b's; nothing is taken from a.
    assert top(op("a", 0, 50), op("b", 40, 90), op("c", 45, 48)) == {
        ("a", "CPU"): (1, 50, 50, 0, 0),
        ("b", "CPU"): (1, 50, 47, 0, 0),
        ("c", "CPU"): (1, 3, 3, 0, 0),
    }


def test_equal_intervals_nest_in_file_order() -> None:
    assert top(op("a", 0, 50), op("b", 0, 50)) == {
        ("a", "CPU"): (1, 50, 0, 0, 0),
        ("b", "CPU"): (1, 50, 50, 0, 0),
    }


def test_device_time_goes_to_the_op_named_and_up_from_there() -> None:
    rows = top(
        op("outer", 0, 100, external=1),
        op("inner", 10, 50, external=2),
        Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME, fields={"external": 2, "correlation": 7}),
        kernel("k", 200, 240, external=2, correlation=7),
        kernel("k", 240, 245, external=1, correlation=8),
    )
    assert rows == {
        ("outer", "CPU"): (1, 100, 60, 45, 5),
        ("inner", "CPU"): (1, 40, 30, 40, 40),
        ("cudaLaunchKernel", "CPU"): (1, 10, 10, 0, 0),
        ("k", "CUDA"): (2, 0, 0, 45, 45),
    }


def test_without_external_ids_the_op_around_the_launch_is_meant() -> None:
    # Rows: 0 range, 1 op, 2 launch, 3 kernel. The range is no op and only sums up.
    rows = top(
        Event("range", 0, 100, Kind.USER_ANNOTATION),
        op("a", 10, 50),
        Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME, fields={"correlation": 7}),
        kernel("k", 200, 240, correlation=7, linked=2),
        kernel("unknown", 300, 310),
    )
    assert rows["a", "CPU"] == (1, 40, 30, 40, 40)
    assert rows["range", "CPU"] == (1, 100, 60, 40, 0)
    assert rows["unknown", "CUDA"] == (1, 0, 0, 10, 10)


def test_a_driver_call_in_a_runtime_call_leads_to_the_op() -> None:
    rows = top(
        op("a", 0, 50),
        Event("cudaLaunchKernel", 10, 40, Kind.RUNTIME),
        Event("cuLaunchKernel", 20, 30, Kind.DRIVER, fields={"correlation": 7}),
        kernel("k", 200, 240, correlation=7, linked=2),
    )
    assert rows["a", "CPU"] == (1, 50, 20, 40, 40)


def test_correlation_ids_written_as_external_ids_name_no_op() -> None:
    rows = top(
        op("wrong", 0, 5, external=7),
        op("right", 10, 50, external=3),
        Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME, fields={"external": 7, "correlation": 7}),
        kernel("k", 200, 240, external=7, correlation=7, linked=2),
    )
    assert rows["right", "CPU"] == (1, 40, 30, 40, 40)
    assert rows["wrong", "CPU"] == (1, 5, 5, 0, 0)


def test_an_external_id_of_two_ops_says_nothing() -> None:
    rows = top(
        op("rank0", 0, 50, external=4),
        Event("rank1", 0, 50, thread=1, fields={"external": 4}),
        Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME, thread=1, fields={"correlation": 7}),
        kernel("k", 200, 240, external=4, correlation=7, linked=2),
    )
    assert rows["rank1", "CPU"] == (1, 50, 40, 40, 40)
    assert rows["rank0", "CPU"] == (1, 50, 50, 0, 0)


def test_the_shadow_of_an_annotation_is_not_counted_twice() -> None:
    rows = averages(
        table_of(
            [
                Event("fwd", 0, 100, Kind.USER_ANNOTATION, fields={"external": 1}),
                Event("fwd", 200, 300, Kind.GPU_USER_ANNOTATION, thread=9, fields={"external": 1}),
            ]
        )
    )
    assert [(row.device_type, row.device_time_total_ns, row.shadow) for row in rows] == [
        ("CPU", 0, False),
        ("CUDA", 100, True),
    ]


def test_ops_do_not_take_up_mtia_work() -> None:
    device = DeviceType.MTIA
    rows = top(op("a", 0, 50, external=1), Event("job", 10, 30, Kind.KERNEL, 9, device, {"external": 1}))
    assert rows == {("a", "CPU"): (1, 50, 50, 0, 0), ("job", "MTIA"): (1, 0, 0, 20, 20)}


def test_marks_counters_and_the_span_of_the_trace_are_not_calls() -> None:
    assert (
        top(
            Event("PyTorch Profiler (0)", 0, 100, Kind.TRACE),
            Event("mark", 5, 5, Kind.INSTANT),
            Event("allocated", 6, None, Kind.COUNTER),
        )
        == {}
    )


def test_overhead_stands_alone() -> None:
    rows = top(op("a", 0, 50), Event("Activity Buffer Request", 10, 20, Kind.OVERHEAD))
    assert rows["a", "CPU"] == (1, 50, 50, 0, 0)
    assert rows["Activity Buffer Request", "CPU"] == (1, 10, 10, 0, 0)


def test_memory_records_show_only_where_no_call_covers_them() -> None:
    marks = [Event("[memory]", at, at, Kind.INSTANT, thread=3) for at in (5, 10, 20, 21)]
    rows = top(op("a", 10, 20), *marks, Event("[OutOfMemory]", 15, 15, Kind.INSTANT))
    assert rows == {
        ("a", "CPU"): (1, 10, 10, 0, 0),
        ("[memory]", "CPU"): (2, 0, 0, 0, 0),
        ("[OutOfMemory]", "CPU"): (1, 0, 0, 0, 0),
    }


@pytest.mark.parametrize("mark", [{"phase": ord("b")}, {"is_async": 1}])
def test_asynchronous_spans_have_totals_only(mark: dict[str, int]) -> None:
    waiting = Event("request", 5, 500, fields=mark)
    rows = top(op("a", 0, 50), waiting, op("b", 10, 20))
    assert rows["request", "CPU"] == (1, 495, 0, 0, 0)
    assert rows["a", "CPU"] == (1, 50, 40, 0, 0)


def test_rows_without_an_end_take_no_time() -> None:
    assert top(op("a", 0, 50), Event("open", 10, None)) == {
        ("a", "CPU"): (1, 50, 50, 0, 0),
        ("open", "CPU"): (1, 0, 0, 0, 0),
    }


def test_a_chain_as_deep_as_it_gets() -> None:
    depth = 20_000
    events = [op(f"f{n % 7}", n, 2 * depth - n, external=n + 1) for n in range(depth)]
    rows = top(*events, kernel("k", 10, 15, external=depth))
    assert sum(row[2] for name, row in rows.items() if name[1] == "CPU") == 2 * depth
    assert rows["f0", "CPU"][3] == 5 * rows["f0", "CPU"][0]


def test_no_events_no_rows() -> None:
    assert averages(table_of([])) == []
    assert averages(table_of([]), raw=True) == []


def test_launches_in_launches_without_an_op() -> None:
    depth = 20_000
    calls = [Event("launch", n, 2 * depth - n, Kind.RUNTIME) for n in range(depth)]
    work = [kernel("k", 3 * depth + n, 3 * depth + n + 1, linked=n) for n in range(depth)]
    rows = top(*calls, *work)
    assert rows["k", "CUDA"] == (depth, 0, 0, depth, depth)
    assert rows["launch", "CPU"][3:] == (0, 0)


def test_cxx_symbols_are_shown_as_they_were_written_and_counted_with_names_that_were_demangled_before() -> None:
    assert top(
        kernel("_Z9vectorAddPKfS0_Pfi", 0, 10),
        kernel("vectorAdd(float const*, float const*, float*, int)", 20, 25),
        kernel("_Z9", 30, 31),
        op("Pf", 0, 5),  # no symbol, though torch shows it as float*
    ) == {
        ("vectorAdd(float const*, float const*, float*, int)", "CUDA"): (2, 0, 0, 15, 15),
        ("_Z9", "CUDA"): (1, 0, 0, 1, 1),
        ("Pf", "CPU"): (1, 5, 5, 0, 0),
    }


def test_symbols_that_stand_for_more_than_fits_an_answer_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "DEMANGLE_TOTAL_BYTES_MAX", 3000)
    names = [f"_Z3f{number:02d}{doubling(5).removeprefix('_Z1f')}" for number in range(9)]
    found = rules.demangled([*names, "aten::mm"])
    assert len(found[0]) > 800
    assert (found[3:9], found[9]) == (names[3:], "aten::mm")
    assert sum(map(len, found[:3])) <= 3000


def test_a_wrapper_is_known_by_its_demangled_name() -> None:
    assert top(op("f(int)", 0, 100), op("_Z1fi", 10, 90)) == {("f(int)", "CPU"): (1, 100, 100, 0, 0)}
    assert [row.name for row in averages(table_of([op("_Z1fi", 0, 1)]), raw=True)] == ["_Z1fi"]


def test_what_ends_on_another_thread_is_asynchronous_and_has_totals_only() -> None:
    events = [
        op("outer", 0, 100),
        op("forked", 10, 60, end_thread=1),
        op("inner", 20, 30),
        op("plain", 70, 90, end_thread=0),  # where it began
    ]
    assert top(*events) == {
        ("outer", "CPU"): (1, 100, 70, 0, 0),
        ("forked", "CPU"): (1, 50, 0, 0, 0),
        ("inner", "CPU"): (1, 10, 10, 0, 0),  # a child of outer
        ("plain", "CPU"): (1, 20, 20, 0, 0),
    }
    raw = {row.name: row.self_cpu_time_total_ns for row in averages(table_of(events), raw=True)}
    assert raw == {"outer": 70, "forked": 50, "inner": 10, "plain": 20}


def event_time(op_id: int, ns: float) -> Event:
    return Event(event_times.NAME, 1000, 1000, Kind.COUNTER, thread=7, fields={"external": op_id, "value": ns})


def test_device_times_by_cuda_events_are_those_of_the_op_less_those_within_it() -> None:
    calls = [op("a", 0, 100, external=1), op("b", 10, 50, external=2), op("c", 20, 30, external=3), op("d", 60, 90)]
    assert top(*calls, event_time(1, 70.0), event_time(3, 20.0), event_time(99, 5.0), event_time(2, -1.0)) == {
        ("a", "CPU"): (1, 100, 30, 70, 50),
        ("b", "CPU"): (1, 40, 30, 20, 0),
        ("c", "CPU"): (1, 10, 10, 20, 20),
        ("d", "CPU"): (1, 30, 30, 0, 0),
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e300])
def test_device_times_that_are_none_are_left_out(value: float) -> None:
    assert top(op("a", 0, 100, external=1), event_time(1, value)) == {("a", "CPU"): (1, 100, 100, 0, 0)}


def test_where_kernels_were_recorded_cuda_events_say_nothing() -> None:
    calls = [op("a", 0, 100, external=1), kernel("k", 10, 40, external=1)]
    found = top(*calls, event_time(1, 70.0))
    assert found["a", "CPU"] == (1, 100, 100, 30, 30)
