"""record_function as a decorator: functions stay what they are, and each call is a range."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import pickle
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Generator

import pytest
from profclient._recorder import record_function

from tests.support.arena_reader import ASYNC, FAILED, Ext
from tests.support.recording import Recording, recording


@record_function("load", part=3)
def load(path: str, *, many: int = 1) -> list[str]:
    """Loads."""
    return [path] * many


class Model:
    @record_function("forward")
    def forward(self, x: int) -> int:
        return x + 1

    @staticmethod
    @record_function("static")
    def static(x: int) -> int:
        return x

    @classmethod
    @record_function("class")
    def make(cls) -> Model:
        return cls()


def test_calls_are_ranges(session: Recording) -> None:
    assert load("a", many=2) == ["a", "a"]
    assert Model().forward(1) == 2
    assert Model.forward(Model(), 1) == 2
    assert Model.static(5) == 5
    assert isinstance(Model.make(), Model)
    arena = session.stop()
    assert arena.names() == ["load", "forward", "forward", "static", "class"]
    assert json.loads(arena.one("load").ext[Ext.ARGS]) == {"part": 3}
    assert all(event.end for event in arena.events)


def test_it_looks_like_the_function() -> None:
    assert load.__name__ == "load"
    assert load.__doc__ == "Loads."
    assert load.__module__ == __name__
    assert load.__qualname__ == "load"
    assert load.__wrapped__("b") == ["b"]  # type: ignore[attr-defined]
    assert str(inspect.signature(load)) == str(inspect.signature(load.__wrapped__))  # type: ignore[attr-defined]
    assert "record_function('load')" in repr(load)
    assert pickle.loads(pickle.dumps(load)) is load
    load.extra = 1
    assert load.extra == 1
    with pytest.raises(AttributeError):
        _ = load.nothing
    bound = Model().forward
    assert bound.__self__.__class__ is Model  # type: ignore[attr-defined]


def test_exceptions_pass_and_mark(session: Recording) -> None:
    @record_function("fails")
    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        fails()
    assert session.stop().one("fails").flags == FAILED


def test_recursion_and_stacked_decorators(session: Recording) -> None:
    @record_function("outer")
    @record_function("inner")
    def countdown(n: int) -> int:
        return countdown(n - 1) if n else 0

    countdown(3)
    arena = session.stop()
    assert arena.names() == ["outer", "inner"] * 4
    ends = [event.end for event in arena.events]
    assert ends == sorted(ends, reverse=True)


def test_a_callable_object_can_be_decorated(session: Recording) -> None:
    class Add:
        def __call__(self, a: int, b: int = 1) -> int:
            return a + b

    assert record_function("add")(Add())(1, b=4) == 5
    assert session.stop().one("add").end


def test_classes_are_refused() -> None:
    with pytest.raises(TypeError, match="decorates functions, not <class"):
        record_function("x")(Model)


async def test_coroutine_functions_stay_so(session: Recording) -> None:
    @record_function("fetch")
    async def fetch(value: int, go: asyncio.Event) -> int:
        """Fetches."""
        await go.wait()
        return value

    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.iscoroutinefunction(fetch)
    assert fetch.__doc__ == "Fetches."
    first, second = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(fetch(1, first)), asyncio.create_task(fetch(2, second))]
    await asyncio.sleep(0)
    first.set()
    assert await tasks[0] == 1
    second.set()
    assert await tasks[1] == 2
    one, two = session.stop().named("fetch")
    assert one.start < two.start < one.end < two.end
    assert one.flags == two.flags == ASYNC


async def test_a_cancelled_coroutine(session: Recording) -> None:
    @record_function("fetch")
    async def fetch() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(fetch())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.stop().one("fetch").flags == ASYNC | FAILED


def test_generators_take_values_and_exceptions(session: Recording) -> None:
    @record_function("numbers")
    def numbers(start: int) -> Generator[int, int | None, str]:
        caught = ""
        sent: int | None = 0
        while True:
            try:
                sent = yield start + (sent or 0)
            except KeyError as error:
                caught = str(error)
                if caught == "'stop'":
                    return caught

    assert inspect.isgeneratorfunction(numbers)
    made = numbers(10)
    assert next(made) == 10
    assert made.send(5) == 15
    assert made.throw(KeyError("again")) == 15
    with pytest.raises(StopIteration) as stopped:
        made.throw(KeyError("stop"))
    assert stopped.value.value == "'stop'"
    event = session.stop().one("numbers")
    assert event.end
    assert event.flags == ASYNC


async def test_asynchronous_generators_take_values_and_exceptions(session: Recording) -> None:
    closed = []

    @record_function("stream")
    async def stream(start: int) -> AsyncGenerator[int, int | None]:
        sent: int | None = 0
        try:
            while True:
                try:
                    sent = yield start + (sent or 0)
                    await asyncio.sleep(0)
                except KeyError:
                    return
        finally:
            closed.append(start)

    assert inspect.isasyncgenfunction(stream)
    made = stream(1)
    assert await anext(made) == 1
    assert await made.asend(4) == 5
    with pytest.raises(StopAsyncIteration):
        await made.athrow(KeyError())
    other = stream(2)
    assert await anext(other) == 2
    await other.aclose()
    assert [item async for item in _first_three(stream)] == [7, 7, 7]
    assert closed[:2] == [1, 2]
    events = session.stop().named("stream")
    assert len(events) == 3
    assert [event.flags for event in events[:2]] == [ASYNC, ASYNC | FAILED]


async def _first_three(stream) -> AsyncIterator[int]:
    made = stream(7)
    for _ in range(3):
        yield await anext(made)
    await made.aclose()


def test_cycles_through_decorated_functions_are_collected() -> None:
    def make() -> weakref.ref[object]:
        class Holder:
            pass

        holder = Holder()

        @record_function("cycle", keep=holder)
        def method() -> object:
            return holder

        holder.method = method  # type: ignore[attr-defined]
        return weakref.ref(holder)

    gone = make()
    gc.collect()
    assert gone() is None


def test_idle_calls_go_straight_through() -> None:
    calls = []
    recorded = record_function("x")(calls.append)
    recorded(1)
    with recording() as session:
        recorded(2)
        assert session.stop().names() == ["x"]
    recorded(3)
    assert calls == [1, 2, 3]
