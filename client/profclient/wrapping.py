"""`record_function` around coroutine functions and generators: Python, so that they stay what they are.

`inspect.iscoroutinefunction`, asyncio and test runners look at the function itself. Each call has a range of its own
that may interleave with others; it lasts from the first step to the last.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any


def wrap(span: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with a range like `span` around everything that it runs."""
    if inspect.isasyncgenfunction(function):
        return functools.wraps(function)(_asynchronous_generator(span, function))
    if inspect.iscoroutinefunction(function):
        return functools.wraps(function)(_coroutine(span, function))
    return functools.wraps(function)(_generator(span, function))


def _coroutine(span: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    async def recorded(*args: Any, **kwargs: Any) -> Any:
        with span._async_copy():
            return await function(*args, **kwargs)

    return recorded


def _generator(span: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with span._async_copy():
            return (yield from function(*args, **kwargs))

    return recorded


def _asynchronous_generator(span: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    async def recorded(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with span._async_copy():
            inner = function(*args, **kwargs)
            try:
                sent = await anext(inner)
                while True:
                    try:
                        received = yield sent
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        sent = await inner.athrow(error)
                    else:
                        sent = await inner.asend(received)
            except StopAsyncIteration:
                return
            finally:
                await inner.aclose()

    return recorded
