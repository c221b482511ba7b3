"""Questions about collectives to agents that lie: the daemon reads how far groups are, a worker what is remembered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from profd.answers.hangs.job import judged
from profd.answers.hangs.look import State
from profd.answers.hangs.recalled import JUDGE_HANG, Recalled
from profd.attached import collectives
from profd.attached.agents.protocol import PacketKind
from profd.attached.collectives import Collectives, JobVerdict
from profd.errors import JobFailed
from profd.limits import RECALL_NUMBERS_BYTES_MAX

from tests.support.agent_server import ME, serving, tell
from tests.support.cancelled import assert_writes_nowhere
from tests.support.captures import process
from tests.support.fake_agent import FakeAgent

NUMBERS = b'{"pg_status":{"0":{"last_enqueued_collective":"5","last_completed_collective":"4"}}}'
RANK = process(ME.pid, id=ME, job="j", rank=0)
UID = 1000


async def in_this_process(job: str, args: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
    """The job, as a worker gets it."""
    assert job == JUDGE_HANG
    return json.loads(json.dumps(judged(json.loads(json.dumps(args)), [*fds], lambda what, share: None)))


async def answers(fake: FakeAgent, numbers: bytes, remembered: bytes) -> None:
    while True:
        question = await fake.expect(PacketKind.RECALL)
        tell(fake, question.epoch, remembered if question.fields["entries"] == "1" else numbers)


async def asked(
    numbers: bytes = NUMBERS, remembered: bytes = NUMBERS, run_job: Callable[..., Any] = in_this_process
) -> list[JobVerdict]:
    """What is said of a job of one process, whose agent answers so."""
    async with serving() as served:
        fake, _ = await served.attached(framework="torch 2.13.0", can="recall", job="j", rank=0)
        with contextlib.closing(fake):
            answering = asyncio.create_task(answers(fake, numbers, remembered))
            asker = Collectives(served.registry, run_job)
            before = await asker.before(UID, [RANK])
            said = [] if before is None else await asker.after(UID, before, [RANK], {})
            answering.cancel()
            await asyncio.wait([answering])
            return said


async def test_what_is_remembered_is_judged_by_the_job() -> None:
    entry = {"process_group": ["0", "default_pg"], "collective_seq_id": 5, "profiling_name": "gloo:all_reduce"}
    [said] = await asked(remembered=json.dumps({**json.loads(NUMBERS), "entries": [entry]}).encode())
    assert (said.job, said.pids, said.verdict.state) == ("j", (ME.pid,), State.HANG)
    assert (said.verdict.sequence, said.verdict.operation, said.verdict.waiting) == (5, "all_reduce", ("rank 0",))


@pytest.mark.parametrize(
    ("remembered", "why"),
    [(b"{" * 9, "malformed"), (b'{"entries":[' + b"{}," * 60_000 + b"{}]}", "more than 50000 collectives")],
    ids=["malformed", "many"],
)
async def test_the_daemon_hands_on_what_is_remembered_unread(remembered: bytes, why: str) -> None:
    """Empty entries, three bytes each, took it 5 s and 660 MiB of memory for each process, and all users waited."""
    held = []

    async def run_job(job: str, args: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        held.append(args["dumps"])
        return await in_this_process(job, args, fds)

    [said] = await asked(remembered=remembered, run_job=run_job)
    assert held == [[len(remembered)]]
    assert said.verdict.state is State.UNKNOWN
    assert why in said.verdict.notes[0]


async def test_all_that_a_job_remembers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "RECALLED_BYTES_MAX", len(NUMBERS) - 1)
    [said] = await asked()
    assert "remember more than" in said.verdict.notes[0]


async def test_an_answer_of_numbers_alone_is_short() -> None:
    assert await asked(numbers=NUMBERS.ljust(RECALL_NUMBERS_BYTES_MAX + 1)) == []


@pytest.mark.parametrize(
    "verdict", [{}, {"verdict": {"state": "hang"}}, JobFailed("it died")], ids=["none", "half", "dead"]
)
async def test_a_worker_that_lies_or_dies_leaves_the_question_open(verdict: dict[str, Any] | Exception) -> None:
    async def run_job(job: str, args: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    [said] = await asked(run_job=run_job)
    assert said.verdict.state is State.UNKNOWN
    assert "was not read" in said.verdict.sentences[0]


async def test_what_is_remembered_for_who_has_gone_goes_into_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that writes names its file by the number of a descriptor, which is soon another file's."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(self: Recalled, *said: object) -> None:
        entered.set()
        assert go_on.wait(60)
        os.write(self.fd, b"of a target")

    monkeypatch.setattr(Recalled, "write", slow)
    asking = asyncio.create_task(asked())
    await assert_writes_nowhere(asking, entered, go_on, tmp_path)
