"""Others are served between two pieces."""

from __future__ import annotations

import asyncio

import pytest
from profd.fairness.pieces import AT_A_TIME, in_pieces


async def test_others_are_served_between_pieces() -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    waiting = asyncio.create_task(other())
    done = await in_pieces(lambda number: (order.append(str(number)), 2 * number)[1], [1, 2, 3, 4, 5], 2)
    await waiting
    assert done == [2, 4, 6, 8, 10]
    assert order == ["1", "2", "other", "3", "4", "5"]


async def test_a_few_wait_for_nobody() -> None:
    with pytest.raises(StopIteration) as ended:
        in_pieces(str, range(AT_A_TIME)).send(None)
    assert ended.value.value == list(map(str, range(AT_A_TIME)))
