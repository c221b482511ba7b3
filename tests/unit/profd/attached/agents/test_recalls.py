"""What agents answer when they are asked what their process remembers, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from profd.attached.agents.agent import NotRecalled
from profd.attached.agents.protocol import PacketKind
from profd.limits import (
    RECALL_NUMBERS_BYTES_MAX,
)

from tests.support.agent_server import Served, tell
from tests.support.fake_agent import LONG, SEALS


async def test_a_recall_is_answered_with_what_the_process_remembers(served: Served) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        asked = [asyncio.create_task(agent.recall(LONG, entries=entries)) for entries in (False, True)]
        questions = [await fake.expect(PacketKind.RECALL) for _ in asked]
        assert [question.fields["entries"] for question in questions] == ["0", "1"]
        for question in reversed(questions):  # in any order
            tell(fake, question.epoch, b"{%d}" % question.epoch)
        assert [await each for each in asked] == [b"{%d}" % question.epoch for question in questions]


@pytest.mark.parametrize("end", ["why", "death", "silence"])
async def test_a_recall_that_is_not_answered(served: Served, end: str) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        asked = asyncio.create_task(agent.recall(0.05 if end == "silence" else LONG, entries=True))
        question = await fake.expect(PacketKind.RECALL)
        if end == "why":
            fake.send(PacketKind.RECALLED, question.epoch, why="torch is not loaded")
        if end == "death":
            fake.close()
        expected = {"why": "torch is not loaded", "death": "gone away", "silence": "has not answered within"}
        with pytest.raises(NotRecalled, match=expected[end]):
            await asked


async def test_an_answer_that_nobody_waits_for_is_dropped(served: Served) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        tell(fake, 0, b"{}")
        asked = asyncio.create_task(agent.recall(LONG, entries=False))
        question = await fake.expect(PacketKind.RECALL)
        tell(fake, question.epoch, b"{1}")
        assert await asked == b"{1}"


@pytest.mark.parametrize(("size", "seals"), [(0, 0), (RECALL_NUMBERS_BYTES_MAX + 1, SEALS)], ids=["unsealed", "large"])
async def test_a_hostile_answer_ends_the_connection(served: Served, size: int, seals: int) -> None:
    fake, agent = await served.attached()
    with contextlib.closing(fake):
        asked = asyncio.create_task(agent.recall(LONG, entries=False))
        question = await fake.expect(PacketKind.RECALL)
        tell(fake, question.epoch, b"{}", size, seals)
        with pytest.raises(NotRecalled):
            await asked
        assert await fake.cut_off()
