"""Whose turn it is, without workers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest
from profd.errors import Unavailable
from profd.fairness.shares import Holder
from profd.questions.jobs import GLANCES, JOBS, SHORT
from profd.questions.packed import KEPT_ONLY
from profd.workers.asked import Asked
from profd.workers.turns import JobKind, Turn, Turns


def turn(uid: int, kind: JobKind) -> Turn:
    return Turn(Holder(uid, reserved=False), kind)


async def served(turns: Turns[str], *asked: Turn) -> list[bool]:
    """Who has a place at once."""
    tasks = [asyncio.ensure_future(turns.get(each)) for each in asked]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [task.done() for task in tasks]


def two() -> Turns[str]:
    turns: Turns[str] = Turns(2)
    turns.put("first")
    turns.put("second")
    return turns


async def test_one_user_leaves_a_place_to_others() -> None:
    questions = [turn(1, JobKind.QUESTION), turn(1, JobKind.QUESTION), turn(2, JobKind.QUESTION)]
    assert await served(two(), *questions) == [True, False, True]


async def test_a_user_has_the_same_place_again() -> None:
    """It may have been made anew, by whoever abandons questions: the other is warm, for others."""
    turns = two()
    question = turn(1, JobKind.QUESTION)
    assert [await turns.get(question), await turns.get(turn(2, JobKind.QUESTION))] == ["first", "second"]
    turns.put("second", 2)
    turns.done(turn(2, JobKind.QUESTION))
    again = asyncio.ensure_future(turns.get(question))
    await asyncio.sleep(0)
    turns.put("first, anew", 1)
    turns.done(question)
    assert await again == "first, anew"
    assert await turns.get(turn(2, JobKind.QUESTION)) == "second"


async def test_captures_of_one_user_leave_a_place_to_those_of_others() -> None:
    turns = two()
    asked = [turn(1, JobKind.CAPTURE), turn(1, JobKind.CAPTURE)]
    assert await served(turns, *asked) == [True, False]
    # Another place would be of no use to the one that waits.
    assert not turns.crowded(3)
    assert await served(turns, turn(2, JobKind.CAPTURE)) == [True]


async def test_captures_of_one_user_are_all_stored_one_after_the_other() -> None:
    turns = two()

    async def store() -> None:
        place = await turns.get(turn(1, JobKind.CAPTURE))
        await asyncio.sleep(0)
        turns.done(turn(1, JobKind.CAPTURE))
        turns.put(place)

    async with asyncio.timeout(60):
        await asyncio.gather(*(store() for _ in range(5)))
    assert (turns.free, turns.waiting) == (2, 0)


@pytest.mark.parametrize(
    ("first", "second"), [(JobKind.CAPTURE, JobKind.QUESTION), (JobKind.QUESTION, JobKind.CAPTURE)]
)
async def test_a_capture_and_a_question_of_one_user_leave_a_place_to_others_that_wait(
    first: JobKind, second: JobKind
) -> None:
    turns: Turns[str] = Turns(2)
    asked = [turn(1, first), turn(1, second), turn(2, JobKind.QUESTION)]
    tasks = [asyncio.ensure_future(turns.get(each)) for each in asked]
    await asyncio.sleep(0)
    turns.put("first")
    turns.put("second")
    await asyncio.sleep(0)
    # The capture is first, whichever was asked for first.
    assert [task.done() for task in tasks] == [first is JobKind.CAPTURE, second is JobKind.CAPTURE, True]
    # AND the rest has its turn when the other's is done
    turns.done(asked[2])
    turns.put("second")
    await asyncio.gather(*tasks)


async def test_alone_or_beside_those_who_could_not_use_it_one_user_has_all_places() -> None:
    assert await served(two(), turn(1, JobKind.CAPTURE), turn(1, JobKind.QUESTION)) == [True, True]
    # One who waits with what lasts has no use for it while another's lasts.
    asked = [turn(1, JobKind.LONG), turn(2, JobKind.LONG), turn(1, JobKind.CAPTURE)]
    assert await served(two(), *asked) == [True, False, True]


async def test_a_place_more_is_for_who_has_none_and_for_nobody_who_has_some() -> None:
    turns = two()
    asked = [turn(1, JobKind.LONG), turn(1, JobKind.LONG), turn(2, JobKind.LONG)]
    tasks = [asyncio.ensure_future(turns.get(each)) for each in asked]
    await asyncio.sleep(0)
    assert [turns.starves(uid) for uid in (1, 2, 3)] == [False, True, False]
    turns.grow("third")
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True, False, True]
    # AND a short question still finds a place, which lasting ones may not take
    assert await served(turns, turn(3, JobKind.LONG), turn(4, JobKind.QUESTION)) == [False, True]


async def test_a_place_more_is_taken_back_when_nobody_needs_it() -> None:
    turns = two()
    mine, others = turn(1, JobKind.LONG), turn(2, JobKind.LONG)
    assert turns.shrink() is None  # never below the size
    await turns.get(mine)
    waits = asyncio.ensure_future(turns.get(others))
    await asyncio.sleep(0)
    turns.grow("third")
    place = await waits
    assert turns.shrink() is None  # what lasts has all that it may have
    turns.done(others)
    turns.put(place)
    assert turns.shrink() is not None
    assert (turns.grown, turns.free) == (0, 1)
    assert turns.shrink() is None


async def test_the_only_place_goes_to_captures_in_turn() -> None:
    turns: Turns[str] = Turns(1)
    asked = [asyncio.ensure_future(turns.get(turn(uid, JobKind.CAPTURE))) for uid in (1, 1, 2)]
    await asyncio.sleep(0)
    turns.put("one")
    for uid, then in ((1, asked[0]), (2, asked[2]), (1, asked[1])):
        assert await then == "one"
        turns.done(turn(uid, JobKind.CAPTURE))
        turns.put("one")


async def test_who_runs_the_daemon_may_have_all_places() -> None:
    mine = Turn(Holder(1, reserved=True), JobKind.CAPTURE)
    assert await served(two(), mine, mine) == [True, True]


async def test_what_an_earlier_daemon_left_is_its_owners_turn() -> None:
    turns: list[Turn] = []

    class Pool:
        async def run(self, *_arguments: object, turn: Turn) -> dict[str, Any]:
            turns.append(turn)
            return {}

    asked = Asked(Pool(), JobKind.CAPTURE, owner=4321)  # type: ignore[arg-type]  # as much of one as is asked
    nobodys = contextvars.Context()  # in ours an earlier test may have left its caller
    await asyncio.create_task(asked("store", {}), context=nobodys)
    assert turns == [turn(4321, JobKind.CAPTURE)]


async def test_a_question_waits_in_the_turn_of_its_cost() -> None:
    """What comes back whole is no stream, and what is imported lasts."""
    kinds = {}

    class Pool:
        async def run(self, job: str, args: object, fds: object, on_progress: object, turn: Turn) -> dict[str, object]:
            kinds[job] = turn.kind
            return {}

    asked = Asked(Pool(), short=SHORT, glances=GLANCES)  # type: ignore[arg-type]  # as much of one as is asked
    for job in JOBS:
        await asked(job, {})
    short, glances = (
        {"summary", "top", "explain", "critical", "judge_hang", "search"},
        {"tiles", "tiles_index", "event"},
    )
    assert {job for job, kind in kinds.items() if kind is JobKind.QUESTION} == short
    assert {job for job, kind in kinds.items() if kind is JobKind.GLANCE} == glances
    assert {kind for job, kind in kinds.items() if job not in short | glances} == {JobKind.LONG}


async def test_what_was_kept_is_a_glance() -> None:
    """An import of the same user holds it up no more than a tile."""
    kinds = []

    class Pool:
        async def run(self, job: str, args: object, fds: object, on_progress: object, turn: Turn) -> dict[str, object]:
            kinds.append(turn.kind)
            return {}

    asked = Asked(Pool(), short=SHORT, glances=GLANCES, looks=KEPT_ONLY)  # type: ignore[arg-type]
    for job in ("steps", "top"):
        await asked(job, {KEPT_ONLY: True})
        await asked(job, {})
    assert kinds == [JobKind.GLANCE, JobKind.LONG, JobKind.GLANCE, JobKind.QUESTION]


async def test_a_glance_waits_for_no_import_and_one_user_has_one_beside_all() -> None:
    turns = two()
    asked = [
        turn(1, JobKind.LONG),
        turn(1, JobKind.LONG),
        turn(1, JobKind.QUESTION),
        turn(1, JobKind.GLANCE),
        turn(1, JobKind.GLANCE),
    ]
    assert await served(turns, *asked) == [True, False, False, True, False]
    turns.done(asked[3])
    turns.put("second")
    # AND whoever has none comes first
    others = turn(2, JobKind.QUESTION)
    turns = two()
    assert await served(turns, turn(1, JobKind.LONG)) == [True]
    await turns.get(others)
    waiting = [asyncio.ensure_future(turns.get(each)) for each in (turn(1, JobKind.GLANCE), turn(3, JobKind.GLANCE))]
    await asyncio.sleep(0)
    turns.done(others)
    turns.put("second")
    await asyncio.sleep(0)
    assert [one.done() for one in waiting] == [False, True]
    for one in waiting:
        one.cancel()


@pytest.mark.parametrize("kind", [JobKind.LONG, JobKind.PUSHED])
async def test_what_lasts_leaves_a_place_to_captures(kind: JobKind) -> None:
    asked = [turn(1, kind), turn(2, kind), turn(3, JobKind.CAPTURE)]
    assert await served(two(), *asked) == [True, False, True]


async def test_what_was_streamed_to_us_leaves_a_place_to_questions_of_others() -> None:
    asked = [turn(1, JobKind.PUSHED), turn(1, JobKind.PUSHED), turn(2, JobKind.QUESTION)]
    assert await served(two(), *asked) == [True, False, True]


async def test_a_place_comes_back_to_whose_turn_it_is() -> None:
    turns = two()
    for uid in (1, 2):
        await turns.get(turn(uid, JobKind.QUESTION))
    waiting = [asyncio.ensure_future(turns.get(turn(uid, JobKind.QUESTION))) for uid in (1, 1, 3)]
    capture = asyncio.ensure_future(turns.get(turn(1, JobKind.CAPTURE)))
    await asyncio.sleep(0)
    assert turns.crowded(1)
    # The capture first, then who would not have all places by it.
    for uid, place, then in ((1, "first", capture), (2, "second", waiting[2])):
        turns.done(turn(uid, JobKind.QUESTION))
        turns.put(place)
        assert await then == place
    assert [task.done() for task in waiting] == [False, False, True]


@pytest.mark.parametrize("given", [False, True])
async def test_who_goes_away_leaves_the_place(given: bool) -> None:
    turns: Turns[str] = Turns(1)
    gone = asyncio.ensure_future(turns.get(turn(1, JobKind.QUESTION)))
    await asyncio.sleep(0)
    steps: list[Callable[[], object]] = [lambda: turns.put("one"), gone.cancel]
    for step in steps if given else reversed(steps):
        step()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await turns.get(turn(1, JobKind.QUESTION)) == "one"
    assert not turns.crowded(2)


async def test_all_are_told_when_it_is_closed() -> None:
    turns: Turns[str] = Turns(1)
    waiting = asyncio.ensure_future(turns.get(turn(1, JobKind.LONG)))
    await asyncio.sleep(0)
    turns.close()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await turns.get(turn(1, JobKind.LONG))
