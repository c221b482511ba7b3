from __future__ import annotations

import asyncio
import os

from profd.capture.death import DeathWatch
from profd.errors import Exhausted, NotFound
from profd.targets.process import ProcessId

PROCESS = ProcessId(1, 1)


class Table:
    """A process table that gives these answers in turn; None: a pipe whose other end is closed."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)

    def pidfd(self, process: ProcessId) -> int:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        reader, writer = os.pipe()
        os.close(writer)
        return reader


def test_a_process_that_is_gone_has_ended() -> None:
    asyncio.run(DeathWatch(Table(NotFound("gone")))(PROCESS))


def test_without_a_descriptor_it_is_tried_again_until_there_is_one() -> None:
    table = Table(Exhausted("none left"), Exhausted("none left"), None)
    asyncio.run(DeathWatch(table, retry_seconds=0)(PROCESS))
    assert table.answers == []
