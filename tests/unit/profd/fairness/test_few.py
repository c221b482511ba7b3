"""Places of which one user never has all."""

from __future__ import annotations

import asyncio

from profd.fairness.few import Few
from profd.limits import JAX_REQUESTS_AT_ONCE_PER_UID
from profd.sources.jax.source import JaxSource

from tests.support.captures import LONG
from tests.support.waiting import eventually


async def test_who_waits_outside_takes_nobody_s_place() -> None:
    few = Few(2, 3)
    one = few.of(1)
    asked = [asyncio.create_task(one.acquire()) for _ in range(9)]
    async with asyncio.timeout(LONG):
        await asyncio.gather(*asked[:2])
        assert one.locked()
        assert not few.of(2).locked()
        async with few.of(2):
            assert few.of(3).locked()
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_who_is_cancelled_before_a_place_comes_keeps_none() -> None:
    few = Few(1, 1)
    async with asyncio.timeout(LONG):
        first = few.of(1)
        await first.acquire()
        theirs = few.of(2)
        waiting = asyncio.create_task(theirs.acquire())
        await eventually(theirs._own.locked)
        waiting.cancel()
        await asyncio.wait({waiting})
        first.release()
        async with few.place(2):
            assert theirs.locked()
    assert not theirs.locked()


async def test_servers_of_one_user_that_never_answer_leave_others_a_request() -> None:
    few = JaxSource()._few
    theirs, ours = few.of(1001), few.of(1002)
    for _ in range(JAX_REQUESTS_AT_ONCE_PER_UID):
        await theirs.acquire()
    assert theirs.locked()
    assert not ours.locked()
