"""Spans merged by the engine, against the slow twin; families of events; what is not accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd import _engine
from profd.derive.timeline.groups import NO_GROUP
from profd.derive.timeline.lines import DerivedEvent, LineEvents
from profd.derive.timeline.merge import Puts, merge

from tests.support.span_lines import LineBuilder

NAMES = ("a", "b", "c")
PATHS = st.lists(st.sampled_from(NAMES), max_size=3)
ROW = st.tuples(
    st.integers(0, 6000),  # from the start before
    st.integers(0, 9000),
    st.sampled_from((NO_GROUP, 0, 1)),
    st.one_of(st.none(), PATHS),
    st.one_of(st.none(), PATHS),
    st.one_of(st.none(), st.lists(st.integers(1, 2), max_size=3)),
)


def _column(values: list[int]) -> Any:
    return np.array(values, dtype=np.int64)


@given(st.lists(ROW, max_size=25), st.booleans(), st.booleans())
@settings(max_examples=300)
def test_property_merged_as_by_the_twin(rows: list[Any], close_gaps: bool, close_last: bool) -> None:
    inner = LineBuilder(close_gaps=close_gaps)
    outer = LineBuilder([inner], close_gaps=close_gaps)
    puts = Puts(len(rows)), Puts(len(rows), after=0)
    starts, ends = [], []
    for row, (gap, lasts, group, outer_path, inner_path, scopes) in enumerate(rows):
        starts.append((starts[-1] if starts else 0) + gap)
        ends.append(starts[-1] + lasts)
        for line, put, path in ((outer, puts[0], outer_path), (inner, puts[1], inner_path)):
            if path is None:
                continue
            within = None if group == NO_GROUP else group
            told = scopes if scopes is not None and len(scopes) == len(path) else None
            line.put([(name, name) for name in path], (starts[-1], ends[-1]), within, told)
            put.put(np.array([row]), np.array([0]), [[(name, (name, "")) for name in path]])
            if scopes is not None:
                put.tell_apart(np.array([row]), _column([0] * len(rows)), lambda _, told=scopes: told)
    if close_last:
        outer.close()
        inner.close()
    group = _column([row[2] for row in rows])
    merged = merge(puts, _column(starts), _column(ends), group, close_gaps=close_gaps, close_last=close_last)
    for line, found in zip((outer, inner), merged, strict=True):
        assert list(found.spans) == [
            DerivedEvent(event.name, event.start, event.end, event.group) for event in line.events
        ]


def _merged(*paths: list[str], span: tuple[int, int] = (0, 3500)) -> list[tuple[str, int, int]]:
    puts = Puts(len(paths))
    for row, path in enumerate(paths):
        puts.put(np.array([row]), np.array([0]), [[(name, (name, "")) for name in path]])
    columns = (_column([value] * len(paths)) for value in (*span, NO_GROUP))
    (line,) = merge([puts], *columns, close_gaps=True, close_last=True)
    return [(event.name, event.start, event.end) for event in line.spans]


def test_the_shrunk_keep_a_nanosecond() -> None:
    assert [end for _, _, end in _merged(list("abcdef"))] == [3500, 2500, 1500, 1500, 1500, 1500]


def test_no_levels_change_nothing() -> None:
    assert _merged(["a"], [], ["a"]) == [("a", 0, 3500)]


def test_the_innermost_event_of_each_row() -> None:
    puts = Puts(3)
    puts.put(np.array([0, 2]), np.array([0, 1]), [[("a", ("a", "")), ("b", ("b", ""))], [("a", ("a", ""))]])
    (line,) = merge([puts], *map(_column, ([0, 1, 2], [1, 2, 3], [0, 0, 0])), close_gaps=True, close_last=False)
    assert line.innermost.tolist() == [1, -1, 0]


def test_spans_in_order_keep_what_belongs_to_them() -> None:
    events = [DerivedEvent("b", 5, 6), DerivedEvent("a", 0, 4, 1, "long", {"n": 1}), DerivedEvent("c", 0, 9)]
    spans = LineEvents.of(events)
    assert list(spans) == [events[2], events[1], events[0]]
    back = LineEvents(
        spans.start[::-1], spans.end[::-1], spans.group[::-1], spans.label[::-1], spans.labels, {1: {"n": 1}}
    )
    assert list(back.in_order()) == list(spans)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"what": [7]}, "what is beyond its lists"),
        ({"scope": [3]}, "scope is beyond its lists"),
        ({"offsets": [0, 9]}, "offsets of lists do not end"),
        ({"offsets": [1, 0]}, "lists have no offsets"),
        ({"offsets": []}, "lists have no offsets"),
        ({"after": 0}, "depends on a later one"),
        ({"what": [0, 0]}, "what has 2 rows"),
    ],
)
def test_what_cannot_be_put(change: dict[str, Any], message: str) -> None:
    given_line: dict[str, Any] = {"what": [0], "scope": [-1], "offsets": [0, 1], "after": -1} | change
    line = (
        np.array(given_line["what"], dtype=np.int32),
        np.array(given_line["scope"], dtype=np.int32),
        _column(given_line["offsets"]),
        np.array([0], dtype=np.int32),
        _column([0]),
        _column([]),
        given_line["after"],
    )
    with pytest.raises(ValueError, match=message):
        _engine.merge_spans(_column([0]), _column([1]), _column([0]), [line], close_gaps=True, close_last=True)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.permutations(range(4)))
def test_property_groups_reach_what_has_none(links: list[tuple[int, int]], roots: list[int]) -> None:
    above, below = (_column([link[side] for link in links]) for side in (0, 1))
    of, begun = _engine.Family(above, below, 10).groups(_column(roots), _column([]), 1000)
    expected = [NO_GROUP] * 10
    for group, root in enumerate(roots):
        wait = [root] if expected[root] == NO_GROUP else []
        while wait:
            at = wait.pop()
            if expected[at] == NO_GROUP:
                expected[at] = group
                wait += [child for parent, child in links if parent == at]
    assert (of.tolist(), begun.tolist()) == (expected, roots)


def test_a_root_below_another_of_its_level_begins_no_group() -> None:
    """Also where links form a circle."""
    family = _engine.Family(_column([0, 1, 2, 3]), _column([1, 2, 0, 4]), 5)
    of, begun = family.groups(_column([1, 3, 4]), _column([1, 1, 9, 2, 3]), 1000)
    assert begun.tolist() == [3, 4]
    assert of.tolist() == [-1, -1, -1, 0, 0]
    assert family.above(0) == [2]


def test_looking_for_ancestors_is_bounded() -> None:
    chain = np.arange(1000, dtype=np.int64)
    family = _engine.Family(chain[:-1].copy(), chain[1:].copy(), 1000)
    with pytest.raises(ValueError, match="too many roots lie within others"):
        family.groups(chain, chain + 5, 10_000)
    with pytest.raises(ValueError, match="leads to no event"):
        _engine.Family(_column([0]), _column([7]), 7)
    with pytest.raises(ValueError, match="no such root"):
        family.groups(_column([1000]), _column([]), 10)
