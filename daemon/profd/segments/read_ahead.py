"""One item ahead."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

_T = TypeVar("_T")


def read_ahead(items: Generator[_T]) -> Generator[_T]:
    """The same items; while the caller uses one, a thread makes the next. Two are in memory at a time.

    An error in the making of an item is raised in the item's place. A caller that ends before them closes this, and
    the items are closed: until then the thread reads on, from what may not be the caller's any more.
    """
    with closing(items), ThreadPoolExecutor(1, "read-ahead") as background:
        waiting = background.submit(_next, items)
        while found := waiting.result():
            waiting = background.submit(_next, items)
            yield found[0]


def _next(items: Iterator[_T]) -> tuple[_T] | None:
    for item in items:
        return (item,)
    return None
