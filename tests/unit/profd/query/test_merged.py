"""The merged tree against a slow one: each call walks up to its root, and all calls of one path are added up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import Kind, Tracks
from profd.query import merged, stretches
from profd.query.merged import merged_tree
from profd.segments.reader import TraceReader

from tests.support.importing import import_trace
from tests.support.tables import Event, store, table_of
from tests.unit.profd.engine.test_paths import folded

PYTHON = Kind.PYTHON_FUNCTION


def trace_of(folder: Path, events: list[Event], rows: int = 1 << 19) -> TraceReader:
    tracks = Tracks([{"id": 1}], [{"id": 11, "process": 0, "name": "main"}, {"id": 12, "process": 0}])
    return TraceReader(store(table_of(events), folder / "t", rows=rows, tracks=tracks))


def lines(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("depth", "name", "count", "total_ns", "self_ns")
    return [tuple(node[key] for key in keys) for node in answer["nodes"]]


def test_all_calls_of_one_path_the_hottest_first(tmp_path: Path) -> None:
    events = [
        Event("main", 0, 100, PYTHON),
        Event("load", 5, 15, PYTHON, fields={"parent": 0}),
        Event("step", 20, 50, PYTHON, fields={"parent": 0}),
        Event("op", 30, 40, fields={"parent": 2}),
        Event("step", 60, 95, PYTHON, fields={"parent": 0}),
        Event("op", 65, 70, fields={"parent": 4}),
        Event("op", 75, 80, fields={"parent": 4}),
    ]
    answer = merged_tree(trace_of(tmp_path, events), limit=0)
    assert lines(answer) == [
        (0, "main", 1, 100, 25),
        (1, "step", 2, 65, 45),
        (2, "op", 3, 20, 20),
        (1, "load", 1, 10, 10),
    ]
    assert (answer["window_ns"], answer["calls"], answer["paths"], answer["left_out"]) == (100, 7, 4, 0)
    assert [node["share"] for node in answer["nodes"]] == [1.0, 0.65, 0.2, 0.1]
    assert {node["kind"] for node in answer["nodes"]} == {"python_function", "cpu_op"}


def test_device_work_stands_below_its_launch_and_counts_for_all_above(tmp_path: Path) -> None:
    events = [
        Event("op", 0, 10),
        Event("launch", 2, 4, Kind.RUNTIME, fields={"parent": 0}),
        Event("kernel", 50, 90, Kind.KERNEL, thread=1, fields={"parent": 1, "linked": 1}),
        Event("range", 50, 90, Kind.GPU_USER_ANNOTATION, thread=1),
        Event("[memory]", 5, 5, Kind.INSTANT, fields={"parent": 0}),
    ]
    nodes = merged_tree(trace_of(tmp_path, events), limit=0)["nodes"]
    assert [(node["name"], node["total_ns"], node["self_ns"], node["device_total_ns"]) for node in nodes] == [
        ("op", 10, 8, 40),
        ("launch", 2, 2, 40),
        ("kernel", 40, 40, 40),
    ]


def test_what_is_left_out_gives_its_time_to_the_nearest_that_is_not(tmp_path: Path) -> None:
    """Of modules, operators or samples alone, with work of devices below the nearest of them."""
    events = [
        Event("nn.Module: Net_0", 0, 100, PYTHON),
        Event("forward", 5, 95, PYTHON, fields={"parent": 0}),
        Event("nn.Module: Linear_0", 10, 60, PYTHON, fields={"parent": 1}),
        Event("linear", 20, 50, fields={"parent": 2}),
        Event("t.py(7): f", 22, 48, PYTHON, fields={"parent": 3}),
        Event("mm", 25, 45, fields={"parent": 4}),
        Event("launch", 30, 32, Kind.RUNTIME, fields={"parent": 5}),
        Event("sampled", 40, 41, Kind.SAMPLE, fields={"parent": 6}),
        Event("gemm", 60, 99, Kind.KERNEL, thread=1, fields={"parent": 6, "linked": 6}),
    ]
    trace = trace_of(tmp_path, events)
    assert lines(merged_tree(trace, limit=0, of="modules")) == [
        (0, "nn.Module: Net_0", 1, 100, 50),
        (1, "nn.Module: Linear_0", 1, 50, 50),
        (2, "gemm", 1, 39, 39),
    ]
    operators = merged_tree(trace, limit=0, of="operators")
    assert lines(operators) == [(0, "linear", 1, 30, 10), (1, "mm", 1, 20, 20), (2, "gemm", 1, 39, 39)]
    assert [node["device_total_ns"] for node in operators["nodes"]] == [39, 39, 39]
    assert lines(merged_tree(trace, limit=0, of="samples")) == [(0, "sampled", 1, 1, 1)]
    assert merged_tree(trace, limit=0, of="calls") == merged_tree(trace, limit=0)


def test_backward_ops_on_a_thread_of_their_own_take_nothing_from_what_is_around(tmp_path: Path) -> None:
    events = [Event("backward", 0, 50, PYTHON), Event("MmBackward", 10, 40, thread=1, fields={"parent": 0})]
    assert lines(merged_tree(trace_of(tmp_path, events), limit=0)) == [
        (0, "backward", 1, 50, 50),
        (1, "MmBackward", 1, 30, 30),
    ]


def test_what_has_no_end_lasts_as_long_as_what_is_around_it(tmp_path: Path) -> None:
    events = [
        Event("main", 0, None, PYTHON),
        Event("f", 10, None, PYTHON, fields={"parent": 0}),
        Event("g", 20, 60, PYTHON, fields={"parent": 1}),
        Event("h", 30, None, PYTHON, fields={"parent": 2}),
        Event("last", 70, 80, PYTHON, fields={"parent": 1}),
    ]
    assert lines(merged_tree(trace_of(tmp_path, events), limit=0)) == [
        (0, "main", 1, 80, 10),
        (1, "f", 1, 70, 20),
        (2, "g", 1, 40, 10),
        (3, "h", 1, 30, 30),
        (2, "last", 1, 10, 10),
    ]


@st.composite
def stacks(draw: st.DrawFn) -> list[Event]:
    """Calls that nest, with their parents as the tree stores them: one thread, no time without a call between two."""
    events: list[Event] = []
    now = 0

    def call(parent: int, depth: int) -> None:
        nonlocal now
        row = len(events)
        fields = {"parent": parent} if parent >= 0 else {}
        name = draw(st.sampled_from("abc"))
        events.append(Event(name, now, None, draw(st.sampled_from([PYTHON, Kind.CPU_OP])), fields=fields))
        now += draw(st.integers(1, 4))
        for _ in range(draw(st.integers(0, 2)) if depth < 7 else 0):
            call(row, depth + 1)
            now += draw(st.integers(0, 2))
        events[row].end = now + 1
        now += 1

    for _ in range(draw(st.integers(1, 2))):
        call(-1, 0)
    return events


def slow(events: list[Event], low: int, high: int) -> dict[tuple[Any, ...], list[int]]:
    """Path -> [calls, ns in which one of it is open, ns in which it is open and nothing below it] in the window."""
    kinds = [("abc".index(event.name) * 2 + (event.kind is PYTHON)) for event in events]
    folds = [bool(number % 2) for number in range(6)]
    chains: list[list[int]] = []
    found: dict[tuple[Any, ...], list[int]] = {}
    paths = []
    for row, event in enumerate(events):
        above = event.fields.get("parent", -1)
        chains.append([*(chains[above] if above >= 0 else []), kinds[row]])
        paths.append(folded(chains[row], folds))
    seen = [(e.end or 0) > low and e.start < high for e in events]
    for path in dict.fromkeys(path for path, there in zip(paths, seen, strict=True) if there):
        rows = [row for row in range(len(events)) if paths[row] == path and seen[row]]
        open_ns = {ns for row in rows for ns in range(max(events[row].start, low), min(events[row].end or 0, high))}
        own = sum(
            not any(child.fields.get("parent") == row and child.start <= ns < (child.end or 0) for child in events)
            for row in rows
            for ns in range(max(events[row].start, low), min(events[row].end or 0, high))
        )
        found[tuple(("abc"[key // 2], bool(key % 2)) for key in path)] = [len(rows), len(open_ns), own]
    return found


@given(stacks(), st.integers(0, 20), st.integers(1, 60), st.integers(1, 5))
def test_property_paths_are_what_each_nanosecond_tells(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], low: int, lasting: int, rows: int
) -> None:
    reader = trace_of(tmp_path_factory.mktemp("t"), events, rows)
    end = max(event.end or 0 for event in events)
    low = min(low, end - 1)
    answer = merged_tree(reader, limit=0, from_ns=low, to_ns=low + lasting)
    found: dict[tuple[Any, ...], list[int]] = {}
    way: list[tuple[str, bool]] = []
    weights: list[int] = []
    for node in answer["nodes"]:
        del way[node["depth"] :], weights[node["depth"] + 1 :]
        way.append((node["name"], node["kind"] == "python_function"))
        found[tuple(way)] = [node["count"], node["total_ns"], node["self_ns"]]
        if len(weights) > node["depth"]:
            assert node["total_ns"] <= weights[node["depth"]]
            weights.pop()
        weights.append(node["total_ns"])
    assert found == slow(events, low, low + lasting)
    assert answer["window_ns"] == min(lasting, end - low)


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    """`stacks` on two threads, some without an end, and work of devices long after its launch, or before."""
    events: list[Event] = []
    for thread in range(2):
        first = len(events)
        for event in draw(stacks()):
            fields = {name: first + row for name, row in event.fields.items()}
            events.append(
                Event(event.name, 2 * event.start + thread, 2 * (event.end or 0), event.kind, thread, fields=fields)
            )
            if draw(st.integers(0, 5)) == 0:
                events[-1].end = None
    for launch in draw(st.lists(st.integers(0, len(events) - 1), max_size=5)):
        start = draw(st.integers(0, 80))
        fields = {"parent": launch, "linked": launch}
        events.append(Event("gemm", start, start + draw(st.integers(0, 9)), Kind.KERNEL, 2, fields=fields))
    order = sorted(range(len(events)), key=lambda row: events[row].start)
    place = {row: number for number, row in enumerate(order)}
    for event in events:
        event.fields = {name: place[row] for name, row in event.fields.items()}
    return [events[row] for row in order]


@given(
    traces(), st.integers(1, 4), st.sampled_from(["calls", "operators", "modules"]), st.sampled_from(["", "11", "12"])
)
def test_property_a_trace_read_a_stretch_at_a_time_has_the_same_paths(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], rows: int, of: str, thread: str
) -> None:
    reader = trace_of(tmp_path_factory.mktemp("t"), events, rows)

    def asked(most: int) -> tuple[dict[str, Any], dict[tuple[str, ...], list[dict[str, Any]]]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stretches, "STRETCH_ROWS", most)
            answer = merged_tree(reader, limit=0, of=of, thread=thread)
        found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        way: list[str] = []
        for node in answer.pop("nodes"):
            del way[node["depth"] :]
            way.append(f"{node['name']} {node['kind']}")
            found.setdefault(tuple(way), []).append(node)
        return answer, found

    assert asked(1) == asked(1 << 20)


def test_the_hottest_paths_are_shown_with_all_above_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event("main", 0, 1000, PYTHON)]
    events += [Event(f"f{n}", 10 * n, 10 * n + n % 10, PYTHON, fields={"parent": 0}) for n in range(1, 90)]
    reader = trace_of(tmp_path, events)
    answer = merged_tree(reader, limit=4)
    assert [node["name"] for node in answer["nodes"]] == ["main", "f9", "f19", "f29"]
    assert (answer["paths"], answer["left_out"]) == (90, 86)
    monkeypatch.setattr(merged, "MERGED_PATHS_MAX", 2)
    assert len(merged_tree(reader, limit=0)["nodes"]) == len(merged_tree(reader, limit=50)["nodes"]) == 2


def test_recursion_as_deep_as_it_gets(tmp_path: Path) -> None:
    """One path for f, and g within f within g of the other; nothing overflows."""
    depth = 100_000
    for names, want in (("f", 1), ("fg", 3)):
        events = [
            Event(names[at % len(names)], at, 2 * depth + 9 - at, PYTHON, fields={"parent": at - 1})
            for at in range(depth)
        ]
        answer = merged_tree(trace_of(tmp_path / names, events), limit=0)
        assert (len(answer["nodes"]), answer["nodes"][0]["recursive"]) == (want, names == "f")
        assert answer["nodes"][0]["total_ns"] == 2 * depth + 9
        assert sum(node["self_ns"] for node in answer["nodes"]) == 2 * depth + 9
    operators = [Event("op", at, 2 * depth + 9 - at, fields={"parent": at - 1}) for at in range(depth)]
    assert merged_tree(trace_of(tmp_path / "ops", operators), limit=5)["paths"] == depth


def test_no_events_no_paths(tmp_path: Path) -> None:
    answer = merged_tree(trace_of(tmp_path, []), limit=0)
    assert answer == {"window_ns": 0, "calls": 0, "paths": 0, "left_out": 0, "own_threads": 0, "nodes": []}


def test_names_that_lie_are_data(tmp_path: Path) -> None:
    name = "a\x1b[2Jb\nnext\u202e"
    answer = merged_tree(trace_of(tmp_path, [Event(name, 0, 5)]), limit=0)
    assert json.loads(json.dumps(answer))["nodes"][0]["name"] == name


def test_a_real_trace_adds_up(trace_data: Path, tmp_path: Path) -> None:
    file = trace_data / "resnet50_workers0.json.gz"
    import_trace(file, tmp_path / "stored")
    reader = TraceReader(tmp_path / "stored")
    answer = merged_tree(reader, limit=0)
    assert answer["left_out"] == 0
    assert sum(node["count"] for node in answer["nodes"]) == answer["calls"]
    roots = [node for node in answer["nodes"] if node["depth"] == 0]
    assert roots[0]["name"] == "ProfilerStep*"
    cpu = [node for node in answer["nodes"] if node["device_type"] == "CPU"]
    assert all(0 <= node["self_ns"] <= node["total_ns"] for node in cpu)
