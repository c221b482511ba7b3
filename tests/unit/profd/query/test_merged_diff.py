"""Two call trees as one, against a slow one: each call walks up to its root, in each trace by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import Exhausted
from profd.events import Kind, Tracks
from profd.query import merged_diff as module
from profd.query.captured import Captured
from profd.query.merged import merged_tree
from profd.query.merged_diff import merged_diff, merged_diff_of_captures
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of
from tests.unit.profd.engine.test_paths import folded
from tests.unit.profd.query.test_merged import PYTHON, stacks

STEP = Kind.USER_ANNOTATION
NAMES, KINDS = ["a", "b", "c", "ProfilerStep*"], [PYTHON, Kind.CPU_OP, STEP]
Sums = dict[tuple[tuple[str, str], ...], list[int]]


def trace_of(folder: Path, events: list[Event], **meta: Any) -> TraceReader:
    tracks = Tracks([{"id": 1}], [{"id": 11, "process": 0}, {"id": 12, "process": 0}])
    return TraceReader(store(table_of(events), folder, tracks=tracks, **meta))


def with_steps(events: list[Event], edges: list[int]) -> list[Event]:
    """A step from each edge to the next, on a thread of its own; parents are rows in start order."""
    steps = [Event(f"ProfilerStep#{at}", low, high, STEP, thread=1) for at, (low, high) in enumerate(pairwise(edges))]
    rows = sorted([*events, *steps], key=lambda event: event.start)
    place = {id(event): row for row, event in enumerate(rows)}
    parents = [place[id(events[one.fields["parent"]])] if "parent" in one.fields else None for one in rows]
    for one, parent in zip(rows, parents, strict=True):
        one.fields = {} if parent is None else {"parent": parent}
    return rows


def slow(events: list[Event], edges: list[int] | None) -> Sums:
    """Path -> [ns in it and below it, own ns, calls], of what begins within the edges."""
    key = [
        NAMES.index("ProfilerStep*" if one.kind is STEP else one.name) * len(KINDS) + KINDS.index(one.kind)
        for one in events
    ]
    folds = [KINDS[at % len(KINDS)] is PYTHON for at in range(len(NAMES) * len(KINDS))]
    found: defaultdict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row, event in enumerate(events):
        if edges is not None and not edges[0] <= event.start < edges[-1]:
            continue
        way, at = [key[row]], event.fields.get("parent")
        while at is not None:
            way.insert(0, key[at])
            at = events[at].fields.get("parent")
        path = folded(way, folds)
        below = sum((one.end or 0) - one.start for one in events if one.fields.get("parent") == row)
        own = (event.end or 0) - event.start - below
        for length in range(1, len(path) + 1):
            found[path[:length]][0] += own
        found[path][1] += own
        found[path][2] += 1
    return {tuple((NAMES[k // 3], KINDS[k % 3].label) for k in path): sums for path, sums in found.items()}


def walked(answer: dict[str, Any]) -> Iterator[tuple[tuple[tuple[str, str], ...], dict[str, Any]]]:
    way: list[tuple[str, str]] = []
    for node in answer["nodes"]:
        del way[node["depth"] :]
        way.append((node["name"], node["kind"]))
        yield tuple(way), node


def mean(total: int, steps: int) -> int:
    return (2 * total + steps) // (2 * steps)


@given(stacks(), stacks(), st.lists(st.lists(st.integers(0, 40), min_size=2, max_size=4, unique=True), max_size=2))
def test_property_both_are_what_each_call_tells(
    tmp_path_factory: pytest.TempPathFactory, first: list[Event], second: list[Event], cuts: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    edges = [sorted(one) for one in cuts] if len(cuts) == 2 else [None, None]
    sides = [with_steps(events, known or []) for events, known in zip((first, second), edges, strict=True)]
    readers = [trace_of(folder / name, events) for name, events in zip("ab", sides, strict=True)]
    answer = merged_diff(*readers, limit=0)
    want = [slow(events, known) for events, known in zip(sides, edges, strict=True)]
    steps = [len(known) - 1 if known else 1 for known in edges]
    found = dict(walked(answer))
    assert {*found} == {*want[0], *want[1]}
    for path, node in found.items():
        for side, sums, count in zip("ab", want, steps, strict=True):
            total, own, calls = sums.get(path, [0, 0, 0])
            assert node[f"{side}_ns"] == mean(total, count)
            assert node[f"{side}_self_ns"] == mean(own, count)
            assert node[f"{side}_count"] == pytest.approx(calls / count, abs=1e-3)
    assert (answer["per"], answer["left_out"]) == ("step" if edges[0] else "trace", 0)


def test_without_steps_a_side_is_the_merged_tree(tmp_path: Path) -> None:
    events = [Event("f", 0, 90, PYTHON), Event("op", 10, 30, fields={"parent": 0})]
    events += [Event("launch", 12, 14, Kind.RUNTIME, fields={"parent": 1})]
    events += [Event("kernel", 50, 80, Kind.KERNEL, thread=1, fields={"parent": 2, "linked": 2})]
    slower = [*events[:3], Event("kernel", 50, 120, Kind.KERNEL, thread=1, fields={"parent": 2, "linked": 2})]
    readers = trace_of(tmp_path / "a", events), trace_of(tmp_path / "b", slower)
    answer = merged_diff(*readers, limit=0)
    for side, reader in zip("ab", readers, strict=True):
        one = merged_tree(reader, limit=0)["nodes"]
        assert [node["device_total_ns"] for node in one] == [node[f"{side}_device_ns"] for node in answer["nodes"]]
        assert [node["name"] for node in one] == [node["name"] for node in answer["nodes"]]
    assert [node["b_ns"] for node in answer["nodes"]] == [90, 20, 2, 0]
    assert answer["message"].startswith("not both traces mark steps")


def test_what_is_new_and_gone_and_in_no_step(tmp_path: Path) -> None:
    """Line numbers move, and what begins outside of all steps is not compared."""
    early = [Event("start", 0, 5, PYTHON)]
    first = [*early, Event("t.py(7): f", 12, 16, PYTHON), Event("old", 17, 19, PYTHON)]
    second = [*early, Event("t.py(9): f", 12, 18, PYTHON), Event("new", 25, 28, PYTHON)]
    answer = merged_diff(
        trace_of(tmp_path / "a", with_steps(first, [10, 20]), source="sdk"),
        trace_of(tmp_path / "b", with_steps(second, [10, 20, 30]), source="kineto"),
        limit=0,
    )
    nodes = {node["name"]: (node["a_ns"], node["b_ns"], node["a_count"], node["b_count"]) for node in answer["nodes"]}
    assert nodes == {
        "ProfilerStep*": (10, 10, 1, 1),
        "t.py: f": (4, 3, 1, 0.5),
        "old": (2, 0, 1, 0),
        "new": (0, 2, 0, 0.5),  # 3 ns in two steps
    }
    assert (answer["steps"], answer["outside_steps_ns"], answer["sources"]) == ([1, 2], [5, 5], ["sdk", "kineto"])
    assert "A was recorded by sdk, B by kineto" in answer["message"]


def test_those_with_most_time_in_either_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = [Event(f"a{at}", 100 * at, 100 * at + at, PYTHON) for at in range(1, 9)]
    second = [Event(f"b{at}", 100 * at, 100 * at + at, PYTHON) for at in range(1, 9)]
    readers = trace_of(tmp_path / "a", first), trace_of(tmp_path / "b", second)
    answer = merged_diff(*readers, limit=3)
    assert sorted(node["name"] for node in answer["nodes"][:2]) == ["a8", "b8"]
    assert (answer["paths"], answer["left_out"]) == (16, 13)
    monkeypatch.setattr(module, "MERGED_PATHS_MAX", 5)
    assert len(merged_diff(*readers, limit=0)["nodes"]) == len(merged_diff(*readers, limit=9)["nodes"]) == 5


def test_captures_are_their_traces_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recursion that was folded in each trace stays so, and a step of any rank is one."""

    def rank(name: str, lasts: int) -> Path:
        events = [Event("f", 1, 1 + lasts, PYTHON), Event("f", 2, lasts, PYTHON, fields={"parent": 0})]
        trace = "06v0000aaaaaa".replace("a", name)
        return trace_of(tmp_path / name, with_steps(events, [0, 50]), trace=trace, capture="c1").directory

    first, second = Captured([rank("a", 10), rank("b", 20)]), Captured([rank("c", 40)])
    answer = merged_diff_of_captures(first, second, limit=0)
    nodes = {path: (node["a_ns"], node["b_ns"], node["a_count"]) for path, node in walked(answer)}
    assert nodes[("f", "python_function"),] == (15, 40, 2)
    assert [one["capture"] for one in answer["captures"]] == ["c1", "c1"]
    assert answer["steps"] == [2, 1]
    monkeypatch.setattr(module, "MERGED_SIDE_PATHS_MAX", 3)
    with pytest.raises(Exhausted, match="the capture c1 have more than 3 paths"):
        merged_diff_of_captures(first, second, limit=0)


def test_no_events_no_paths(tmp_path: Path) -> None:
    answer = merged_diff(trace_of(tmp_path / "a", []), trace_of(tmp_path / "b", []), limit=0)
    assert (answer["paths"], answer["nodes"], answer["per"]) == (0, [], "trace")
