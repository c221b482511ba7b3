"""Derived lines: the worked cases (recorded from XProf), and what they do not say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd.derive.timeline import groups as groups_module
from profd.derive.timeline import space as space_module
from profd.derive.timeline.classic import derive_classic
from profd.derive.timeline.current import derive, stream_order, stream_row
from profd.derive.timeline.groups import NO_GROUP, Groups, find_groups, inherit, nesting
from profd.derive.timeline.lines import DerivedEvent, DerivedLine, What
from profd.derive.timeline.names import parse_op
from profd.derive.timeline.places import Places
from profd.derive.timeline.space import MISSING, NO_TEXT, Line, Space
from profd.errors import Exhausted
from profd.limits import XSPACE_LEVELS_MAX
from profd.query.space import read_space
from profproto.xspace import xplane_pb2

from tests.support.hlo import program
from tests.support.timeline_cases import CASES, case, xspace_of
from tests.support.xspace import store

_COLLIDING = "thirty_streams"  # of the oracle: sixteen streams have lines, and rows hold several of them


def _space(given_planes: dict[str, Any], folder: Path) -> Space:
    return read_space(store(xspace_of(given_planes), folder / "trace"))


def _shown(event: DerivedEvent) -> dict[str, Any]:
    args = {key: str(value) for key, value in event.args.items()}
    if event.group is not None:
        args["group_id"] = str(event.group)
    if event.long_name:
        args["long_name"] = event.long_name
    return {"name": event.name, "offset_ps": event.start, "duration_ps": event.end - event.start, "args": args}


def _rows(lines: list[DerivedLine], plane: str) -> list[dict[str, Any]]:
    rows = [
        {"plane": plane, "row": line.row, "name": line.name, "events": [_shown(event) for event in line.events]}
        for line in lines
        if line.plane == plane
    ]
    return sorted(rows, key=lambda row: row["row"])


def _is_derived(row: dict[str, Any]) -> bool:
    return row["row"] > 1_000_000 or " - from #" in (row["name"] or "")


@pytest.mark.parametrize("one", [one for one in CASES if one["id"] != _COLLIDING], ids=lambda one: one["id"])
def test_worked_case(one: dict[str, Any], tmp_path: Path) -> None:
    space = _space(one["input"], tmp_path)
    lines, groups = derive(space)
    plane = one["expected"][0]["plane"]
    expected = [row for row in one["expected"] if _is_derived(row)]
    assert _rows(lines, plane) == sorted(expected, key=lambda row: row["row"])
    _check_streams(space, groups, plane, [row for row in one["expected"] if not _is_derived(row)])


def _check_streams(space: Space, groups: Groups, plane: str, expected: list[dict[str, Any]]) -> None:
    """Their order, and the groups of their events."""
    streams = stream_order(space, Places.of(space), space.planes.index(plane))
    rows = [stream_row(place) if "GPU" in plane else 0 for place in range(len(streams))]
    assert [row["row"] for row in expected] == rows
    for row, stream in zip(expected, streams, strict=True):
        own = np.flatnonzero(space.line == stream)
        own = own[np.argsort(space.start[own], kind="stable")]
        assert [space.words[name] for name in space.name[own]] == [event["name"] for event in row["events"]]
        wanted = [int(event["args"].get("group_id", NO_GROUP)) for event in row["events"]]
        assert groups.of[own].tolist() == wanted


def test_thirty_streams_have_thirty_sets_of_lines(tmp_path: Path) -> None:
    lines, _ = derive(_space(case(_COLLIDING)["input"], tmp_path))
    assert len(lines) == 60
    assert len({line.row for line in lines}) == 60
    for stream in range(1, 31):
        scopes, ops = (line for line in lines if line.stream == stream)
        assert (scopes.name, ops.name) == (f"Framework Name Scope - from #{stream}", f"Framework Ops - from #{stream}")
        assert [_shown(event)["name"] for event in (*scopes.events, *ops.events)] == ["a", "Mul"]


def _lines(given_planes: list[dict[str, Any]], folder: Path) -> dict[str, list[tuple[str, int, int]]]:
    lines, _ = derive(_space({"planes": given_planes}, folder))
    return {line.name: [(event.name, event.start, event.end - event.start) for event in line.events] for line in lines}


def _event(name: str, offset: int, duration: int, **stats: Any) -> dict[str, Any]:
    typed = {key: {"ref" if isinstance(value, str) else "int64": value} for key, value in stats.items()}
    return {"name": name, "offset_ps": offset, "duration_ps": duration, "stats": typed}


def _plane(name: str, events: list[dict[str, Any]], line: str = "", number: int = 0) -> dict[str, Any]:
    return {"name": name, "lines": [{"id": number, "name": line, "events": events}]}


def test_the_last_scopes_of_a_tpu_are_told_apart_too(tmp_path: Path) -> None:
    plane = _plane("/device:TPU:0", [_event("op1", 0, 10000, tf_op="scope1/scope2/mul:Mul")])
    assert _lines([plane], tmp_path)["Framework Name Scope"] == [("scope1", 0, 10000), ("scope2", 0, 9000)]


def test_events_need_not_be_in_order(tmp_path: Path) -> None:
    events = [_event("op", (9 - place) * 200, 100, tf_op="MyOp:i") for place in range(10)]
    assert _lines([_plane("/device:TPU:3", events)], tmp_path)["Framework Ops"] == [("i", 0, 1900)]


def test_modules_of_a_host_line(tmp_path: Path) -> None:
    events = [_event("op1", 0, 100, hlo_module="Module1"), _event("op2", 200, 400, hlo_module="Module2")]
    found = _lines([_plane("/host:CPU", events, "main")], tmp_path)
    assert found == {"main-XLA Modules": [("Module1", 0, 100), ("Module2", 200, 400)]}


def test_roots_of_a_host_are_steps(tmp_path: Path) -> None:
    events = [_event("train", at * 100, 50, _r=1, step_num=at + 7) for at in range(2)]
    found = _lines([_plane("/host:CPU", events, "main")], tmp_path)
    assert found == {"Steps": [("train 7", 0, 50), ("train 8", 100, 50)]}


def test_groups_pass_from_producers_to_consumers(tmp_path: Path) -> None:
    python = [
        _event("train", 0, 200, _r=1, step_num=123),
        _event("FunctionRun", 10, 80, _pt=1, _p=5),
    ]
    pool = [_event("Process", 20, 60, _ct=1, _c=5), _event("launch", 30, 10, correlation_id=100)]
    host = _plane("/host:CPU", python, "python", 1)
    host["lines"] += _plane("", pool, "pool", 2)["lines"]
    gpu = _plane("/device:GPU:0", [_event("k", 40, 10, correlation_id=100)])
    assert _lines([host, gpu], tmp_path)["Steps"] == [("train 123", 40, 10)]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    one = [_event("a", 0, 50, _r=1, _pt=1, _p=1, _ct=1, _c=2)]
    two = [_event("b", 0, 50, _pt=1, _p=2, _ct=1, _c=1)]
    host = _plane("/host:CPU", one, "one", 1)
    host["lines"] += _plane("", two, "two", 2)["lines"]
    space = _space({"planes": [host]}, tmp_path)
    assert find_groups(space).of.tolist() == [0, 0]


def test_groups_that_the_trace_came_with_are_kept(tmp_path: Path) -> None:
    root = _event("train", 0, 50, _r=1, step_num=3)
    gpu = _plane("/device:GPU:0", [_event("k", 0, 10, group_id=41, step_name="train 41"), _event("k", 20, 10)])
    found = _lines([_plane("/host:CPU", [root]), gpu], tmp_path)
    assert found == {"Steps": [("train 41", 0, 30)]}


def test_derived_lines_of_a_file_are_no_input(tmp_path: Path) -> None:
    stream = _plane("/device:GPU:0", [_event("k", 0, 10, kernel_details="d", tf_op="a/mul:Mul")], "Stream #1", 1)
    stream["lines"] += _plane("", [_event("M", 0, 10, kernel_details="d", tf_op="x/y:Y")], "Framework Ops", 9)["lines"]
    assert _lines([stream], tmp_path).keys() == {"Framework Name Scope - from #1", "Framework Ops - from #1"}


@pytest.mark.parametrize(
    ("full", "shown", "scopes"),
    [
        ("mul:Mul", "Mul", ()),
        ("a/b/mul:Mul", "Mul", ("a", "b")),
        ("jit(f)/while/add:add", "add", ("jit(f)", "while")),
        ("jit(f)/dot_12:", "dot", ("jit(f)",)),
        ("jit(f)/conv:conv[dims=1/2]", "conv", ("jit(f)",)),
        ("no type at all/x", "no type at all/x", ()),
        ("abc:model/layer/MatMul_1", "abc:model/layer/MatMul_1", ()),
        ("jit(f)/jit(g):", "jit(g)", ("jit(f)",)),
        ("net/Dense_2:", "Dense", ("net",)),
        ("x/:", "x/:", ("x",)),
        ("Iterator::Batch::Map", "Iterator::Map", ()),
        ("MEMCPYHtoD", "MemcpyHToD", ()),
        ("a b/mul:Mul", "a b/mul:Mul", ()),
        (":", ":", ()),
        ("", "", ()),
    ],
)
def test_names_of_operators(full: str, shown: str, scopes: tuple[str, ...]) -> None:
    found = parse_op(full)
    assert (found.shown, found.scopes) == (shown, scopes)


def test_of_kernels_that_start_together_the_shortest_comes_first(tmp_path: Path) -> None:
    kernels = [
        _event("k", 0, 1000, kernel_details="d", tf_op="x:A"),
        _event("k", 2000, 3000, kernel_details="d", tf_op="x:A"),
        _event("k", 2000, 1000, kernel_details="d", tf_op="y:B"),
    ]
    lines = _lines([_plane("/device:GPU:0", kernels)], tmp_path)
    assert lines["Framework Ops - from #0"] == [("A", 0, 1000), ("A", 2000, 3000), ("B", 2000, 1000)]


def test_each_launch_of_a_graph_is_an_event(tmp_path: Path) -> None:
    told = {"kernel_details": "d", "hlo_module": "m", "hlo_op": "op", "cuda_graph_id": 6}
    kernels = [_event("k", number * 10, 10, **told, correlation_id=launch) for number, launch in enumerate((1, 1, 2))]
    lines = _lines(
        [_plane("/device:GPU:0", [*kernels, _event("k", 30, 10, **(told | {"cuda_graph_id": 0}))])], tmp_path
    )
    assert lines["Command Buffers - from #0"] == [("Command Buffer 6", 0, 20), ("Command Buffer 6", 20, 10)]
    assert lines["XLA Ops - from #0"] == [("op", 0, 40)]


def test_programs_tell_operators_and_sources_of_xla_kernels(tmp_path: Path) -> None:
    """The same symbols under both rule sets; a kernel of another program, or of none, has no framework line."""
    hlo = program(frames=[("/src/net.py", 3)], tanh={"op_name": b"jit(step)/net/tanh", "stack_frame_id": 1}, copy={})
    told = {"kernel_details": "d", "hlo_module": "jit_step"}
    kernels = [
        _event("k", 0, 5000, **told, hlo_op="while::tanh", program_id=4),
        _event("k", 10_000, 5000, **told, hlo_op="tanh", program_id=4),
        _event("k", 20_000, 5000, **told, hlo_op="copy", program_id=4),
        _event("k", 30_000, 5000, **told, hlo_op="tanh", program_id=5),
        _event("k", 40_000, 5000, **told, hlo_op="tanh"),
    ]
    content = xplane_pb2.XSpace.FromString(xspace_of({"planes": [_plane("/device:GPU:0", kernels)]}))
    programs = content.planes.add(id=9, name="/host:metadata")
    for number, name in ((1, "Hlo Proto"), (2, "program_id")):
        programs.stat_metadata[number].id, programs.stat_metadata[number].name = number, name
    programs.event_metadata[1].id, programs.event_metadata[1].name = 1, "jit_step(4)"
    programs.event_metadata[1].stats.add(metadata_id=1, bytes_value=hlo)
    programs.event_metadata[1].stats.add(metadata_id=2, uint64_value=4)
    space = read_space(store(bytes(content.SerializeToString()), tmp_path / "trace"))
    lines, classic = (
        {line.what: [(event.name, event.start, event.end - event.start) for event in line.events] for line in found}
        for found in (derive(space)[0], derive_classic(space)[0])
    )
    assert lines[What.OPS] == [("tanh", 0, 15_000), (":", 20_000, 5000)]
    assert lines[What.SCOPES] == [("jit(step)", 0, 15_000), ("net", 0, 14_000)]
    assert lines[What.SOURCES] == [("net.py:3", 0, 15_000)]
    classic = {
        line.what: [(e.name, e.start, e.end - e.start) for e in line.events] for line in derive_classic(space)[0]
    }
    assert classic[What.SOURCES] == [("net.py:3", 0, 45_000)]  # programs are told by their names alone
    assert [name for name, _, _ in classic[What.OPS]] == ["tanh", "tanh", ":", "tanh", "tanh"]


def test_sources_of_a_tpu(tmp_path: Path) -> None:
    ops = [
        _event("fusion.1", 0, 10, source="/a/net.py:3", tf_op="net/mul:Mul"),
        _event("fusion.2", 10, 10, source="/a/net.py:3"),
        _event("copy-start", 20, 10, source="/a/net.py:3", tf_op="net/mul:Mul", _a=1),
    ]
    lines = _lines([_plane("/device:TPU:0", ops, "XLA Ops", 3)], tmp_path)
    assert lines["Source code"] == [("/a/net.py:3", 0, 20)]
    assert lines["Framework Ops"] == [("Mul", 0, 10)]


def _loop(name: str, offset: int, step: int, iteration: int) -> dict[str, Any]:
    return _event(name, offset, 10, id=step, iter_num=iteration)


def test_iterations_of_tensorflow_loops_are_groups(tmp_path: Path) -> None:
    """As in the upstream test: two loops, one group for each iteration, in the order of their first events."""
    process = "ExecutorState::Process"
    host = [
        _loop(process, 20, 0, 10), _loop(process, 120, 0, 11), _loop(process, 40, 0, 10),
        _loop(process, 220, 1, 0), _loop(process, 320, 1, 1), _loop(process, 500, 2, 0),
        _event("launch", 42, 5, correlation_id=1), _event("train", 0, 600, _r=1, step_num=5),
    ]  # fmt: skip
    stream = [_event("k", 400, 10, correlation_id=1)]
    inputs = [_loop("IteratorGetNextOp::DoCompute", 700, 1, 1)]
    planes = [_plane("/host:CPU", host), _plane("/device:GPU:0", stream)]
    planes[0]["lines"] += _plane("", inputs, "input", 2)["lines"]
    space = _space({"planes": planes}, tmp_path)
    groups = find_groups(space)
    assert groups.names == {0: "10", 1: "11", 2: "0", 3: "1"}
    group = {(space.words[name], start): of for name, start, of in zip(space.name, space.start, groups.of, strict=True)}
    assert group["k", 400] == group["launch", 42] == group[process, 40] == 0
    assert group["IteratorGetNextOp::DoCompute", 700] == group[process, 320] == 3
    assert group[process, 500] == group["train", 0] == NO_GROUP  # a step of one iteration is no loop


@pytest.mark.parametrize("name", ["WhileOp-StartBody", "ForOp"])
def test_loops_of_another_kind_leave_a_trace_without_groups(tmp_path: Path, name: str) -> None:
    host = [_event("train", 0, 10, _r=1), _event(name, 2, 3)]
    assert find_groups(_space({"planes": [_plane("/host:CPU", host)]}, tmp_path)).names == {}


def test_many_producers_of_one_id_and_their_consumers(tmp_path: Path) -> None:
    """Every consumer is below every producer; where both are many, the id tells nothing."""

    def groups(producers: int, consumers: int) -> list[int]:
        host = [_event("train", 0, 10_000, _r=1), *(_event("p", 10 + at, 1, _pt=1, _p=7) for at in range(producers))]
        others = [_event("c", 10 + at * 2, 1, _ct=1, _c=7) for at in range(consumers)]
        planes = [_plane("/host:CPU", host)]
        planes[0]["lines"] += _plane("", others, "other", 2)["lines"]
        space = _space({"planes": planes}, tmp_path / f"{producers}-{consumers}")
        return sorted(set(find_groups(space).of[space.line == 1].tolist()))

    assert groups(3, 200) == groups(200, 3) == [0]
    assert groups(64, 64) == [NO_GROUP]


_SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 2)), max_size=30)


def _host_space(spans: list[tuple[int, int, int]]) -> Space:
    start = np.array([span[0] for span in spans], dtype=np.int64)
    count = len(spans)
    return Space(
        planes=["/host:CPU"],
        lines=[Line(0, number, "") for number in range(3)],
        start=start,
        end=start + np.array([span[1] for span in spans], dtype=np.int64),
        line=np.array([span[2] for span in spans], dtype=np.int64),
        name=np.zeros(count, dtype=np.int64),
        correlation=np.full(count, MISSING, dtype=np.int64),
        numbers={},
        texts={"tf_op": np.full(count, NO_TEXT, dtype=np.int64)},
        words=["x"],
    )


@given(_SPANS)
@settings(max_examples=150, deadline=None)
def test_a_parent_encloses_its_children(spans: list[tuple[int, int, int]]) -> None:
    space = _host_space(spans)
    for row, parent in enumerate(nesting(space).tolist()):
        if parent >= 0:
            assert space.line[parent] == space.line[row]
            assert space.start[parent] <= space.start[row]
            assert space.end[parent] >= space.end[row]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 3)), max_size=20, unique_by=lambda pair: pair[0]))
def test_the_latest_group_is_inherited(events: list[tuple[int, int]]) -> None:
    space = _host_space([(start, 1, 0) for start, _ in events])
    group = np.array([number for _, number in events], dtype=np.int64)
    inherit(space, np.arange(len(events)), group)
    latest = NO_GROUP
    for row in sorted(range(len(events)), key=lambda row: events[row][0]):
        latest = events[row][1] if events[row][1] != NO_GROUP else latest
        assert group[row] == latest


class _Counted(np.ndarray[Any, np.dtype[np.int64]]):
    """A column that counts how many of its values are looked at."""

    seen = 0

    def __getitem__(self, at: Any) -> Any:
        found = np.asarray(self)[at]
        _Counted.seen += np.size(found)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        _Counted.seen += len(self)
        return getattr(ufunc, method)(*(np.asarray(one) for one in given), **options)


def _looked_at(derivation: Callable[[Space], object], devices: int, streams: int) -> int:
    """How many values of lines, starts and device numbers are read where a trace has so many streams of two events."""
    size = devices * streams * 2
    line, start = np.arange(size) // 2, np.arange(size) * 10
    columns = [column.astype(np.int64).view(_Counted) for column in (line, start, np.full(size, MISSING))]
    _Counted.seen = 0
    derivation(
        Space(
            planes=[f"/device:GPU:{number}" for number in range(devices)],
            lines=[Line(number // streams, number, "") for number in range(devices * streams)],
            start=columns[1],
            end=start + 5,
            line=columns[0],
            name=np.zeros(size, dtype=np.int64),
            correlation=np.full(size, MISSING),
            numbers={"group_id": np.zeros(size, dtype=np.int64), "device_id": columns[2]},
            texts={"kernel_details": np.zeros(size, dtype=np.int64), "tf_op": np.zeros(size, dtype=np.int64)},
            words=["a/mul:Mul"],
        )
    )
    return _Counted.seen


@pytest.mark.parametrize("derivation", [derive, derive_classic])
@pytest.mark.parametrize("shape", [(1, 32), (32, 1)], ids=["streams", "devices"])
def test_twice_the_streams_are_twice_the_work(derivation: Callable[[Space], object], shape: tuple[int, int]) -> None:
    devices, streams = shape
    once = _looked_at(derivation, devices, streams)
    twice = _looked_at(derivation, devices * 2 if devices > 1 else 1, streams * 2 if streams > 1 else 1)
    assert 0 < once < twice <= 2.2 * once


@pytest.mark.parametrize("number", [MISSING, 7], ids=["nowhere", "outermost"])
def test_roots_in_roots_look_above_them_once(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 300 is a step of its own, named by what is around it."""
    space = _host_space([(at, 1000 - 2 * at, 0) for at in range(300)])
    space.numbers = {"_r": np.arange(300) + 1, "step_num": np.array([number] + [MISSING] * 299)}
    monkeypatch.setattr(groups_module, "XSPACE_NAMING_MAX", 300)
    names = find_groups(space).names
    assert names == {at: f"x {at if number == MISSING else 7}" for at in range(300)}


def test_names_that_take_too_long_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    space = _host_space([(0, 100, 0), (1, 50, 0)])
    space.numbers = {"_r": np.array([MISSING, 1]), "step_num": np.array([MISSING, MISSING])}
    monkeypatch.setattr(groups_module, "XSPACE_NAMING_MAX", 0)
    with pytest.raises(Exhausted, match="cannot be named"):
        find_groups(space)


def test_a_stat_that_no_event_has_takes_no_memory() -> None:
    """Each stream asks for some."""
    space = _host_space([(0, 1, 0)] * 10)
    for absent, value in ((space.number("_r"), MISSING), (space.text("source"), NO_TEXT)):
        assert absent.tolist() == [value] * 10
        assert absent.strides == (0,)


def test_depths_where_no_trace_has_any_are_left_out(tmp_path: Path) -> None:
    depth = 10 * XSPACE_LEVELS_MAX
    assert len(parse_op("a/" * depth + "mul:Mul").scopes) == XSPACE_LEVELS_MAX
    stats = {"kernel_details": "d", "hlo_module": "m", "hlo_op": "::".join(["x"] * depth), "scope_range_id": 1}
    planes = [_plane("/device:GPU:0", [_event("k", 0, 10, **stats)])]
    parents = {str(scope): scope + 1 for scope in range(1, 900)}  # numbers of metadata, which begin beyond
    lines, _ = derive(_space({"planes": planes, "scope_parents": parents}, tmp_path))
    assert {line.name: len(line.events) for line in lines} == {
        "XLA Modules - from #0": 1,
        "XLA Ops - from #0": XSPACE_LEVELS_MAX,
    }


def test_what_a_plane_is_does_not_cost_each_line_of_each_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace may say that it has hundreds of devices with tens of thousands of streams."""
    looked: list[str] = []

    class Counted:
        def match(self, name: str, pattern: Any = space_module._DEVICE) -> Any:
            looked.append(name)
            return pattern.match(name)

    monkeypatch.setattr(space_module, "_DEVICE", Counted())
    planes = [f"/device:GPU:{number}" for number in range(20)]
    lines = [Line(number % 20, number, f"stream {number}") for number in range(200)]
    each = np.arange(200, dtype=np.int64)
    space = Space(planes, lines, each, each + 1, each, each * 0, np.full(200, MISSING), {}, {}, ["kernel"])
    derive(space)
    assert looked == planes
