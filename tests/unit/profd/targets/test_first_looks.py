"""Looks at many processes before they are recorded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
from profd.limits import PROC_WAIT_LOOP_SECONDS, PROC_WAIT_SECONDS
from profd.targets import first_looks, guarded, identity, looks
from profd.targets.errands.directory import Directory
from profd.targets.guarded import Patience
from profd.targets.identity import Accepted, Standing

from tests.support.sdk_rig import ME
from tests.support.waiting import Standstill, eventually

MANY = first_looks.FEW + 1


@pytest.mark.parametrize("together", [1, MANY])
async def test_a_process_is_accepted_however_many_there_are(together: int) -> None:
    accepted = await first_looks.accept(ME, os.getuid(), together)
    assert await first_looks.look(os.getuid(), together, accepted.standing) is Standing.SAME
    accepted.close()


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has this process miss a short look, as a busy host can make any process do."""
    monkeypatch.setattr(guarded, "patience", Patience())
    return lambda: guarded.patience.waited(ME.pid, os.getuid(), PROC_WAIT_LOOP_SECONDS, PROC_WAIT_LOOP_SECONDS)


@pytest.mark.parametrize("together", [1, MANY])
async def test_one_that_answers_late_is_accepted(late: Callable[[], None], together: int) -> None:
    late()
    accepted = await first_looks.accept(ME, os.getuid(), together)
    assert accepted.same
    late()
    assert await first_looks.standing(accepted, together) is Standing.SAME
    accepted.close()


async def test_one_that_does_not_answer_may_be_asked_again(late: Callable[[], None]) -> None:
    accepted = Accepted(ME, os.getuid())
    late()
    assert (accepted.standing(), accepted.silent) == (Standing.CHANGED, True)
    assert "does not answer" in accepted.moved_on()
    assert (await looks.seen(accepted, accepted.standing), accepted.silent) == (Standing.SAME, False)
    accepted.close()


async def test_a_file_of_one_that_answers_late_is_taken(late: Callable[[], None]) -> None:
    accepted = Accepted(ME, os.getuid())
    assert accepted.hold() == ""
    late()
    opened = await Directory.of(accepted, "/tmp")
    assert isinstance(opened, Directory), opened
    opened.close()
    accepted.close()


async def test_one_that_does_not_answer_at_all_has_changed(late: Callable[[], None]) -> None:
    accepted = Accepted(ME, os.getuid())
    late()
    guarded.patience.waited(ME.pid, os.getuid(), PROC_WAIT_SECONDS, PROC_WAIT_SECONDS)
    assert await first_looks.standing(accepted, 1) is Standing.CHANGED
    again = await first_looks.accept(ME, os.getuid(), 1)
    assert (again.standing(), again.silent) == (Standing.CHANGED, True)
    again.close()
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
