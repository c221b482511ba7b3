"""Places that are held shortly: so many at once, users in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from profd.fairness.by_turns import ByTurns


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_users_have_their_turns_however_many_one_of_them_wants() -> None:
    turns = ByTurns(1)
    served: list[int] = []
    held: list[Callable[[], None]] = []

    async def wanted(uid: int) -> None:
        held.append(await turns.get(uid))
        served.append(uid)

    tasks = [asyncio.create_task(wanted(uid)) for uid in (1, 1, 1, 1, 2, 3, 2)]
    for _ in tasks:
        await settled()
        assert turns.free == 0
        held[-1]()
        held[-1]()  # a second time lets nothing go
    await asyncio.gather(*tasks)
    assert served == [1, 1, 2, 3, 1, 2, 1]
    assert turns.free == 1


async def test_who_gives_up_leaves_their_place_to_others() -> None:
    turns = ByTurns(1)
    let_go = await turns.get(1)
    gone, stays = (asyncio.create_task(turns.get(uid)) for uid in (2, 3))
    await settled()
    gone.cancel()
    await settled()
    let_go()
    let_go = await stays
    late = asyncio.create_task(turns.get(4))
    await settled()
    let_go()
    late.cancel()  # it has its place, and does not know it yet
    with pytest.raises(asyncio.CancelledError):
        await late
    assert turns.free == 1


async def test_the_loop_goes_on_between_two_that_begin() -> None:
    turns = ByTurns(2, pause_seconds=0.001)
    await turns.get(1)
    second = asyncio.create_task(turns.get(1))
    await settled()
    assert not second.done()
    assert turns.free == 1
    (await second)()
