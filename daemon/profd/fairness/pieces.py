"""Work of the event loop on many things, in pieces: in between it serves others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

Thing = TypeVar("Thing")
Done = TypeVar("Done")

AT_A_TIME: Final = 32  # processes: what is done with one takes tens of microseconds


def pieces(things: Sequence[Thing], size: int = AT_A_TIME) -> Iterator[Sequence[Thing]]:
    """These in order, so many at a time."""
    return (things[first : first + size] for first in range(0, len(things), size))


async def in_pieces(do: Callable[[Thing], Done], things: Sequence[Thing], size: int = AT_A_TIME) -> list[Done]:
    """What is done with each, in order. Whatever it looks at may change between two pieces."""
    done: list[Done] = []
    for some in pieces(things, size):
        if done:
            await asyncio.sleep(0)
        done += map(do, some)
    return done
