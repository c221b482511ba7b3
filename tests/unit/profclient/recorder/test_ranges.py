"""record_function as a context manager: what nests, fails, interleaves and stays open."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import itertools
import json
import sys
import threading
from types import BuiltinMethodType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient import _recorder
from profclient._recorder import range_pop, range_push, record_function

from tests.support.arena_reader import ASYNC, FAILED, Event, Ext, Kind
from tests.support.recording import Recording, recording


def inside(inner: Event, outer: Event) -> bool:
    return outer.start <= inner.start <= inner.end <= outer.end


def arguments(event: Event) -> object:
    return json.loads(event.ext[Ext.ARGS])


def test_ranges_nest(session: Recording) -> None:
    with record_function("outer") as given:
        within = given.recorded
        with record_function("inner"):
            pass
    assert (within, given.recorded) == (True, False)
    arena = session.stop()
    assert arena.names() == ["outer", "inner"]
    assert all(event.kind is Kind.RANGE and event.flags == 0 for event in arena.events)
    assert inside(arena.one("inner"), arena.one("outer"))
    assert arena.one("outer").thread_name
    assert arena.one("outer").tid == threading.get_native_id()


def test_an_exception_ends_ranges_and_marks_them(session: Recording) -> None:
    with pytest.raises(ZeroDivisionError), record_function("outer"), record_function("inner"):
        _ = 1 // 0
    arena = session.stop()
    assert {event.name: event.flags for event in arena.events} == {"outer": FAILED, "inner": FAILED}
    assert all(event.end for event in arena.events)


def test_a_range_caught_inside_is_no_failure_of_the_outer_one(session: Recording) -> None:
    with record_function("outer"), contextlib.suppress(KeyError), record_function("inner"):
        raise KeyError
    arena = session.stop()
    assert arena.one("outer").flags == 0
    assert arena.one("inner").flags == FAILED


def test_generators_end_out_of_order(session: Recording) -> None:
    def numbers(name: str):
        with record_function(name):
            yield

    first, second = numbers("first"), numbers("second")
    next(first)
    next(second)
    first.close()
    second.close()
    arena = session.stop()
    one, two = arena.one("first"), arena.one("second")
    assert one.start < two.start < one.end < two.end
    assert one.flags == two.flags == FAILED  # GeneratorExit left the block


async def test_interleaved_coroutines(session: Recording) -> None:
    async def work(name: str, ready: asyncio.Event, done: asyncio.Event) -> None:
        with record_function(name):
            ready.set()
            await done.wait()

    events = [asyncio.Event() for _ in range(4)]
    tasks = [asyncio.create_task(work(f"{i}", events[i], events[2 + i])) for i in range(2)]
    await events[0].wait()
    await events[1].wait()
    events[2].set()
    await tasks[0]
    events[3].set()
    await tasks[1]
    arena = session.stop()
    assert arena.one("0").start < arena.one("1").start < arena.one("0").end < arena.one("1").end


def test_one_object_entered_again_before_it_is_left(session: Recording) -> None:
    span = record_function("again")
    with span, span, span, span, span, span:
        pass
    with span:
        pass
    found = session.stop().named("again")
    assert len(found) == 7
    nest, last = found[:6], found[6]
    assert all(inside(inner, outer) for outer, inner in itertools.pairwise(nest))
    assert last.start >= nest[0].end


def test_exit_stack_and_the_type_s_own_methods(session: Recording) -> None:
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(record_function("stacked")).name == "stacked"
    span = record_function("by hand")
    assert type(span).__enter__(span) is span
    assert type(span).__exit__(span, None, None, None) is None
    assert span.__enter__() is span
    span.__exit__(None, None, None)
    arena = session.stop()
    assert arena.names() == ["stacked", "by hand", "by hand"]
    assert all(event.end for event in arena.events)


async def test_async_exit_stack(session: Recording) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(record_function("stacked"))
    assert session.stop().one("stacked").end


def test_a_name_used_again_and_again_is_one_range_each_time(session: Recording) -> None:
    for number in range(6):
        with contextlib.suppress(KeyError), record_function("again and again") as span:
            assert span.name == "again and again"
            assert span.recorded
            if number % 2:
                raise KeyError
    found = session.stop().named("again and again")
    assert [event.flags for event in found] == [0, FAILED] * 3
    assert all(first.end <= second.start for first, second in itertools.pairwise(found))


def test_ranges_of_one_name_within_each_other(session: Recording) -> None:
    def nest(depth: int) -> None:
        with record_function("nested"):
            if depth:
                nest(depth - 1)

    for _ in range(3):
        nest(4)
    found = session.stop().named("nested")
    assert len(found) == 15
    for at in range(0, 15, 5):
        assert all(inside(inner, outer) for outer, inner in itertools.pairwise(found[at : at + 5]))


def test_what_leaves_a_range_leaves_no_other_of_its_name(session: Recording) -> None:
    for _ in range(3):
        with record_function("mine"):
            pass
    leave_mine = record_function("mine").__exit__
    with record_function("mine") as other:
        leave_mine(None, None, None)
        assert other.recorded
    with pytest.raises(TypeError, match=r"__exit__ takes type, value and traceback|decorates functions"):
        leave_mine(3)
    assert all(event.end for event in session.stop().events)


def test_a_range_whose_name_is_displaced_while_it_is_open_still_ends(session: Recording) -> None:
    def displace() -> None:
        for number in range(1000):
            for _ in range(3):
                with record_function(sys.intern(f"displacing {number}")):
                    pass

    for _ in range(3):
        with record_function("open"):
            displace()
    arena = session.stop()
    assert len(arena.events) == 3 + 9000
    assert all(event.end for event in arena.events)
    functions = [each for each in gc.get_objects() if type(each) is BuiltinMethodType]
    assert sum(type(each.__self__) is record_function for each in functions) <= 128, "displaced ranges are not let go"


def test_leaving_what_was_not_entered_does_nothing(session: Recording) -> None:
    record_function("never").__exit__(None, None, None)
    assert session.stop().events == []


def test_misuse_says_what_is_expected() -> None:
    with pytest.raises(TypeError, match="record_function takes a name"):
        record_function(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not nothing"):
        record_function()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="several positional"):
        record_function("a", "b")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="decorates functions"):
        record_function("a")(3)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="method of record_function"):
        record_function.__enter__(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="2 arguments"):
        record_function("a")(1, 2)  # type: ignore[call-arg, type-var]
    with pytest.raises(TypeError):
        type("Sub", (record_function,), {})  # its freelist has room for one type only


def test_arguments_are_json(session: Recording) -> None:
    class Opaque:
        def __repr__(self) -> str:
            raise AssertionError("the values of unknown objects are not asked for")

    given = {
        "int": -5, "big": 1 << 80, "float": 0.1, "nan": float("nan"), "inf": float("-inf"), "yes": True, "none": None,
        "text": 'quote " back\\ line\n tab\t \x01 é 😀', "list": [1, [2, [3, [4, [5]]]]], "dict": {"k": (1, "v")},
        "object": Opaque(), "surrogate": "\ud800",
    }  # fmt: skip
    with record_function("call", **given):
        pass
    found = arguments(session.stop().one("call"))
    assert found == {
        "int": -5, "big": ">2^63", "float": 0.1, "nan": "NaN", "inf": "-Infinity", "yes": True, "none": None,
        "text": given["text"], "list": [1, [2, [3, [4, "list"]]]], "dict": {"k": [1, "v"]},
        "object": f"{Opaque.__name__}", "surrogate": "\\ud800",
    }  # fmt: skip


@given(st.dictionaries(st.text(max_size=20).filter(lambda key: key != "name"), st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
), max_size=5))  # fmt: skip
def test_whatever_is_json_comes_back(given: dict[str, object]) -> None:
    def depth(value: object) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + max((depth(item) for item in inner), default=0) if isinstance(value, dict | list) else 0

    with recording() as session:
        with record_function("call", **given):
            pass
        event = session.stop().one("call")
    if not given:
        assert Ext.ARGS not in event.ext
    elif all(depth(value) <= 4 for value in given.values()) and _encodable(given):
        assert arguments(event) == given


def _encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_arguments_that_do_not_fit_are_counted_and_the_range_is_kept(session: Recording) -> None:
    with record_function("large", text="x" * 10_000):
        pass
    arena = session.stop()
    assert arena.one("large").ext == {}
    assert arena.one("large").end
    assert arena.lost["too_large"] == 1


def test_open_at_stop_stays_open_and_later_ends_are_nobody_s(session: Recording) -> None:
    with record_function("open"):
        _recorder.disarm()
        assert session.read().one("open").end == 0
    assert session.read().one("open").end == 0


def test_an_end_does_not_reach_the_next_session() -> None:
    with recording() as first:
        span = record_function("old")
        span.__enter__()
    with recording() as second:
        with record_function("new"):
            span.__exit__(None, None, None)
            assert second.read().one("new").end == 0
        arena = second.stop()
    assert arena.names() == ["new"]
    assert arena.patches == []
    del first


def test_begun_idle_ended_while_recording() -> None:
    span = record_function("early")
    span.__enter__()
    with recording() as session:
        span.__exit__(None, None, None)
        assert session.stop().events == []


def test_only_the_sources_that_are_on_record() -> None:
    with recording(sources=2) as session:
        with record_function("not asked for"):
            _recorder.set_sources(1)
            with record_function("asked for"):
                _recorder.set_sources(2)  # backed off: what is open still ends
        arena = session.stop()
    assert arena.names() == ["asked for"]
    assert arena.one("asked for").end


def test_push_and_pop(session: Recording) -> None:
    range_push("a")
    range_push("b")
    range_pop()
    range_pop()
    range_pop()  # one too many
    arena = session.stop()
    assert inside(arena.one("b"), arena.one("a"))
    with pytest.raises(TypeError, match="range_push takes a name"):
        range_push(3)  # type: ignore[arg-type]


def test_pops_find_their_pushes_when_recording_pauses_between(session: Recording) -> None:
    range_push("outer")
    _recorder.set_sources(2)
    range_push("left out")
    _recorder.set_sources(1)
    range_pop()
    assert session.read().one("outer").end == 0
    range_pop()
    assert session.stop().one("outer").end


def test_a_thousand_pushes_deep(session: Recording) -> None:
    for i in range(1000):
        range_push(str(i))
    for _ in range(1000):
        range_pop()
    events = session.stop().events
    assert [event.name for event in events] == [str(i) for i in range(1000)]
    assert all(inside(inner, outer) for outer, inner in itertools.pairwise(events))


def test_pushes_deeper_than_is_remembered_are_counted_and_pop_nothing_else() -> None:
    most = 16 * 1024
    with recording() as session:
        for _ in range(most + 2):
            range_push("r")
        range_pop()
        range_pop()
        assert not any(event.end for event in session.read().events)
        range_pop()
        arena = session.stop()
    assert {reason: count for reason, count in arena.lost.items() if count} == {"too_deep": 2}
    assert sum(bool(event.end) for event in arena.events) == 1
    assert len(arena.events) == most
    for _ in range(most):
        range_pop()  # the next test begins with none


def test_totals_count_events_and_not_what_holds_their_arguments(session: Recording) -> None:
    for number in range(10):
        with record_function("with arguments", number=number):
            pass
    assert _recorder.totals()["recorded"] == 10
    session.stop()
    assert _recorder.totals()["recorded"] == 10


def test_a_range_ends_with_its_concurrent_future(session: Recording) -> None:
    go = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool, record_function("request") as request:
        future = pool.submit(go.wait, 60)
        assert request.end_on(future) is future
        with record_function("meanwhile"):
            pass
        assert not request.recorded
        go.set()
    arena = session.stop()
    ended = arena.one("request")
    assert ended.end > arena.one("meanwhile").end
    assert ended.flags == ASYNC
    assert ended.end_tid != ended.tid
    assert len(arena.patches) == 1


async def test_a_range_ends_with_its_asyncio_future(session: Recording) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with record_function("request") as request:
        request.end_on(future)
    assert session.read().one("request").end == 0
    future.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ended = session.stop().one("request")
    assert ended.end
    assert ended.flags == ASYNC


def test_end_on_while_idle_gives_the_future_back() -> None:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    with record_function("request") as request:
        assert request.end_on(future) is future


def test_end_on_something_else_raises_and_the_range_ends_as_usual(session: Recording) -> None:
    with record_function("request") as request, pytest.raises(AttributeError):
        request.end_on(3)
    assert session.stop().one("request").end


def test_nothing_leaks() -> None:
    class Value:
        pass

    value = Value()
    before = sys.getrefcount(value)
    name = "".join(["made", " at ", "run time"])
    names_before = sys.getrefcount(name)
    for _ in range(2):
        with recording():
            for _ in range(100):
                with record_function(name, value=value), record_function(name):
                    pass
        for _ in range(100):  # idle
            with record_function(name, value=value):
                pass
    gc.collect()
    assert sys.getrefcount(value) == before
    assert sys.getrefcount(name) == names_before


def test_names_made_at_run_time_are_told_apart(session: Recording) -> None:
    for i in range(300):  # freed strings' addresses come back with other text
        with record_function(f"name {i}"):
            pass
    assert session.stop().names() == [f"name {i}" for i in range(300)]


@pytest.mark.parametrize("name", ["", "é", "名前 😀", "\ud800", "x" * 70_000, "a\0b"])
def test_odd_names(session: Recording, name: str) -> None:
    with record_function(name):
        pass
    (event,) = session.stop().events
    assert event.name == name.encode("utf-8", "backslashreplace").decode()[: 64 * 1024]
    assert event.end


def test_what_a_range_looks_like() -> None:
    assert repr(record_function("x")) == "record_function('x')"
    assert record_function("x").name == "x"
