"""Looks at many processes before they are recorded."""

from __future__ import annotations

import asyncio
import os

import pytest
from profd.targets import first_looks, identity
from profd.targets.identity import Accepted, Standing

from tests.support.sdk_rig import ME
from tests.support.waiting import Standstill, eventually

MANY = first_looks.FEW + 1


@pytest.mark.parametrize("together", [1, MANY])
async def test_a_process_is_accepted_however_many_there_are(together: int) -> None:
    accepted = await first_looks.accept(ME, os.getuid(), together)
    assert await first_looks.look(os.getuid(), together, accepted.standing) is Standing.SAME
    accepted.close()


async def test_one_that_nobody_waits_for_any_more_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process that is being accepted
    look = Standstill(identity._look)
    monkeypatch.setattr(identity, "_look", look)
    closed: list[Accepted] = []
    close = Accepted.close

    def noted(self: Accepted) -> None:
        close(self)
        closed.append(self)

    monkeypatch.setattr(Accepted, "close", noted)
    accepting = asyncio.create_task(first_looks.accept(ME, os.getuid(), MANY))
    await eventually(look.reached.is_set)
    # WHEN whoever asked goes away THEN its descriptors are closed
    accepting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await accepting
    look.go_on()
    await eventually(lambda: closed)
