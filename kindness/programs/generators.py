"""Generators that are closed, thrown into and left alone, coroutines, recursion, exceptions through many frames."""

import contextlib

from turns import expect, turns

closed = []


def numbers(name):
    """Yields; says how it ended."""
    try:
        for number in range(10):
            try:
                yield number
            except KeyError:
                yield -1
    finally:
        closed.append(name)


def nested(depth):
    """A generator of generators."""
    if depth:
        yield depth
        yield from nested(depth - 1)


def down(depth):
    """An exception from far below."""
    if not depth:
        raise LookupError("the bottom")
    return down(depth - 1)


@contextlib.contextmanager
def managed():
    """Cleans up."""
    try:
        yield
    except LookupError:
        closed.append("managed")


def endless():
    """Until the recursion limit."""
    return endless() + 1


for _ in turns():
    closed.clear()
    first, second, third = numbers("closed"), numbers("thrown"), numbers("left")
    next(first), next(second), next(third)
    expect("thrown into", second.throw(KeyError), -1)
    first.close()
    del third
    expect("the rest", list(second), list(range(1, 10)))
    with managed():
        down(200)
    expect("the order of ends", closed, ["closed", "left", "thrown", "managed"])
    expect("nested", sum(nested(50)), 1275)
    with contextlib.suppress(RecursionError):
        endless()
