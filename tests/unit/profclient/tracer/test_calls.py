"""Which calls are recorded, under which names, and how they nest."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profclient import _recorder
from profclient.tracer import Tracer

from tests.support.arena_reader import FAILED, OPEN_AT_START, Event, Kind, read_arena
from tests.support.tracing import name_of, python_calls, tracing, tree, twin_tree

Node = tuple[Any, ...]


class Oops(Exception):
    """What programs raise."""


# --- programs: what a node does when it runs ---


def run(node: Node) -> None:
    kind, children, detail = node
    _KINDS[kind](children, detail)


def plain(children: list[Node], _: int) -> None:
    for child in children:
        run(child)


def raising(children: list[Node], _: int) -> None:
    for child in children:
        run(child)
    raise Oops


def catching(children: list[Node], _: int) -> None:
    try:
        for child in children:
            run(child)
    except Oops:
        pass


def recursing(children: list[Node], depth: int) -> None:
    if depth:
        return recursing(children, depth - 1)
    for child in children:
        run(child)
    return None


def yielding(children: list[Node]) -> Generator[int, None, None]:
    for at, child in enumerate(children):
        run(child)
        yield at


def delegating(children: list[Node]) -> Generator[int, None, None]:
    try:
        yield from yielding(children)
    finally:
        plain([], 0)


def consuming(children: list[Node], steps: int) -> None:
    """A generator of which some steps are taken; what is left is closed."""
    generator = yielding(children)
    for _ in range(steps):
        next(generator, None)
    generator.close()


def throwing(children: list[Node], steps: int) -> None:
    generator = delegating(children)
    for _ in range(steps):
        next(generator, None)
    with contextlib.suppress(Oops, StopIteration):
        generator.throw(Oops())


def interleaving(children: list[Node], _: int) -> None:
    """Two generators that take turns and end in the order they began."""
    first, second = delegating(children), yielding(children)
    for _child in children:
        next(first, None)
        next(second, None)
    first.close()
    second.close()


def through_c(children: list[Node], _: int) -> None:
    sorted(children, key=lambda child: run(child) or 0)


_KINDS = {
    function.__name__: function
    for function in (plain, raising, catching, recursing, consuming, throwing, interleaving, through_c)
}
_nodes = st.recursive(
    st.tuples(st.sampled_from(["plain", "raising", "recursing"]), st.just([]), st.integers(0, 3)),
    lambda inner: st.tuples(st.sampled_from(sorted(_KINDS)), st.lists(inner, max_size=3), st.integers(0, 3)),
    max_leaves=12,
)


@pytest.fixture(scope="module", autouse=True)
def _no_collector() -> Iterator[None]:
    """Its callbacks would be calls of ours where they happen to run (hypothesis has one)."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@given(node=_nodes)
@settings(max_examples=150)
def test_calls_nest_as_the_interpreter_says(node: Node) -> None:
    def program() -> None:
        catching([node], 0)

    expected = twin_tree(program)
    with tracing() as recording:
        program()
    assert tree(recording.calls(), name_of(program.__code__)) == expected
    assert recording.statistics["resynchronised"] == 0


@pytest.mark.slow
@given(node=_nodes)
@settings(max_examples=50)
def test_calls_of_c_functions_do_not_disturb_those_of_python(node: Node) -> None:
    def program() -> None:
        catching([node], 0)

    expected = twin_tree(program)
    with tracing(c_calls=True) as recording:
        program()
    calls = [event for event in recording.calls() if event.kind is not Kind.C_CALL]
    assert tree(calls, name_of(program.__code__)) == expected
    assert recording.statistics["resynchronised"] == 0
    tree(recording.calls(), name_of(program.__code__))  # those of C nest too


# --- names ---


def test_a_name_is_file_line_function_as_torch_writes_it() -> None:
    with tracing() as recording:
        plain([], 0)
    (event,) = (event for event in python_calls(recording.calls()) if event.name.endswith(": plain"))
    assert event.name == name_of(plain.__code__)
    assert event.name == f"{event.name.partition('(')[0]}({plain.__code__.co_firstlineno}): plain"


def test_a_file_of_the_import_path_is_named_from_there() -> None:
    with tracing() as recording:
        asyncio.iscoroutinefunction(plain)
    names = {event.name for event in python_calls(recording.calls())}
    assert any(name.startswith("asyncio/coroutines.py(") for name in names), names


def test_functions_made_while_recording_have_their_own_names() -> None:
    """A code object that goes away leaves its address to the next one."""
    with tracing() as recording:
        for number in range(300):
            scope: dict[str, Any] = {}
            exec(compile(f"def made_{number}(): pass\nmade_{number}()", f"made-{number}.py", "exec"), scope)
    made = [event.name for event in recording.calls() if "): made_" in event.name]
    assert made == [f"made-{number}.py(1): made_{number}" for number in range(300)]


def test_a_file_name_that_is_no_utf8_is_escaped() -> None:
    scope: dict[str, Any] = {}
    exec(compile("def odd(): pass", "caf\udce9.py", "exec"), scope)
    with tracing() as recording:
        scope["odd"]()
    assert "caf\\udce9.py(1): odd" in [event.name for event in recording.calls()]


def test_names_that_find_no_room_are_counted_and_the_calls_stay() -> None:
    functions = []
    for number in range(200):
        scope: dict[str, Any] = {}
        exec(compile("def named(): pass", "x" * 200 + f"{number}.py", "exec"), scope)
        functions.append(scope["named"])
    with tracing(strings_bytes=4096) as recording:
        for function in functions:
            function()
    assert recording.arena is not None
    nameless = [event for event in recording.calls() if event.name == ""]
    assert len(nameless) > 100
    assert recording.arena.lost["strings_full"] >= len(nameless)


# --- C functions ---


def test_c_functions_are_named_without_their_addresses() -> None:
    items: list[int] = []
    with tracing(c_calls=True) as recording:
        len(items)
        items.append(1)
        "text".upper()
        sys.getrecursionlimit()
    names = [event.name for event in recording.calls() if event.kind is Kind.C_CALL]
    for expected in ("<built-in function len>", "<built-in method append of list object>",
                     "<built-in method upper of str object>", "<built-in function getrecursionlimit>"):  # fmt: skip
        assert expected in names
    assert not any("0x" in name for name in names)


def test_c_functions_are_left_out_unless_asked_for() -> None:
    with tracing() as recording:
        len([])
    assert all(event.kind is not Kind.C_CALL for event in recording.calls())


def test_a_c_function_that_raises_has_failed() -> None:
    with tracing(c_calls=True) as recording:
        with contextlib.suppress(TypeError):
            ord("two letters")
        ord("1")
    flags = [event.flags & FAILED for event in recording.calls() if event.name == "<built-in function ord>"]
    assert flags == [FAILED, 0]


def test_c_functions_may_be_left_out_on_the_way() -> None:
    def outer() -> None:
        len([])
        [0].sort(key=lambda _: recording.tracer.leave_out_c_calls() or 0)
        len([])

    with tracing(c_calls=True) as recording:
        outer()
    names = [event.name for event in recording.calls() if event.kind is Kind.C_CALL]
    assert names.count("<built-in function len>") == 1
    assert all(event.end for event in recording.calls() if event.kind is Kind.C_CALL)


# --- how calls end ---


def test_what_an_exception_left_has_failed() -> None:
    with tracing() as recording:
        catching([("plain", [("raising", [], 0)], 0)], 0)
    failed = [event.name.rpartition(" ")[2] for event in python_calls(recording.calls()) if event.flags & FAILED]
    assert failed == ["run", "plain", "run", "raising"]


def test_a_generator_is_one_event_for_each_time_it_runs() -> None:
    with tracing() as recording:
        list(yielding([("plain", [], 0)] * 3))
    runs = [event for event in recording.calls() if event.name == name_of(yielding.__code__)]
    assert len(runs) == 4
    assert all(event.end and not event.flags & FAILED for event in runs)


def test_coroutines_that_take_turns() -> None:
    async def turn(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(turn(3), turn(5))

    with tracing() as recording:
        asyncio.run(both())
    turns = [event for event in recording.calls() if event.name == name_of(turn.__code__)]
    assert len(turns) == 4 + 6
    assert all(event.end for event in turns)
    assert recording.statistics["resynchronised"] == 0


@pytest.mark.slow
def test_deep_recursion() -> None:
    depth = 100_000

    def down(left: int) -> None:
        if left:
            down(left - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 1000)
    try:
        with tracing() as recording:
            down(depth)
    finally:
        sys.setrecursionlimit(limit)
    calls = [event for event in recording.calls() if event.name == name_of(down.__code__)]
    assert len(calls) == depth + 1
    assert all(inner.end <= outer.end for outer, inner in itertools.pairwise(calls))
    assert all(event.end for event in calls)


# --- the edges of the window ---


def test_open_frames_are_there_from_the_start() -> None:
    def outer() -> None:
        inner()

    def inner() -> None:
        with tracing() as recording:
            plain([], 0)
        recordings.append(recording)

    recordings: list[Any] = []
    outer()
    opened = [event for event in recordings[0].calls() if event.flags & OPEN_AT_START]
    names = [event.name for event in opened]
    assert names[-3:] != names[:3]
    at = names.index(name_of(outer.__code__))
    assert names[at + 1] == name_of(inner.__code__)
    assert len({event.start for event in opened}) == 1
    assert all(event.start <= other.start for event in opened for other in recordings[0].calls())
    assert opened[at].end == opened[at + 1].end == 0, "open at stop: no end is made up"


def test_open_frames_that_return_in_the_window_end_and_no_further() -> None:
    """A return without a call, at every depth."""
    tracer = Tracer()

    def start(depth: int) -> None:
        if depth:
            return start(depth - 1)
        tracer.start()
        return None

    _recorder.arm(arena_bytes=4 << 20, sources=2)
    try:
        start(20)
        plain([], 0)
        tracer.stop()
        _recorder.disarm()
        events = read_arena(_recorder.arena_fd()).events
    finally:
        tracer.stop()
        _recorder.disarm()
        assert _recorder.release()
    starts = [event for event in events if event.name == name_of(start.__code__)]
    assert len(starts) == 21
    assert all(event.flags & OPEN_AT_START and event.end for event in starts)
    assert _recorder.tracer_statistics()["resynchronised"] == 0


def test_calls_longer_than_their_chunk_end_where_they_began() -> None:
    """Their ends are patches: the chunk is sealed when they return."""

    def long() -> None:
        for _ in range(5000):
            plain([], 0)

    with tracing() as recording:
        long()
    assert recording.arena is not None
    (event,) = recording.arena.named(name_of(long.__code__))
    assert event.end > max(call.end for call in recording.arena.named(name_of(plain.__code__)))
    assert recording.arena.patches


def test_a_full_arena_drops_calls_and_counts_them() -> None:
    with tracing(arena_bytes=2 << 20, strings_bytes=1 << 20) as recording:
        for _ in range(40_000):
            plain([], 0)
    assert recording.arena is not None
    recorded = len(recording.arena.events)
    lost = recording.arena.lost["arena_full"]
    assert lost > 0
    assert recorded + lost >= 40_000


def test_greenlets_take_turns_on_a_thread() -> None:
    greenlet = pytest.importorskip("greenlet")

    def one() -> None:
        other.switch()
        plain([], 0)

    def two() -> None:
        plain([], 0)
        first.switch()

    first, other = greenlet.greenlet(one), greenlet.greenlet(two)
    with tracing() as recording:
        first.switch()
    calls = recording.calls()
    assert all(event.end for event in calls if event.name in (name_of(one.__code__), name_of(plain.__code__)))
    (left,) = (event for event in calls if event.name == name_of(two.__code__))
    assert left.end == 0, "it was switched away from and never came back"
    assert recording.statistics["resynchronised"] == 1
    _assert_alone(calls)


def _assert_alone(events: list[Event]) -> None:
    """No slot is two events."""
    assert len({event.id for event in events}) == len(events)
