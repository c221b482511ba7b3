"""The same steps on all ranks: two daemons, and two ranks that step together, or do not."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.fleet.conftest import TwoHosts
from tests.support.attached import Attached, attached
from tests.support.long import long
from tests.support.stepping_ranks import ALONE, OPTIMIZER, PROGRAM

SLOW = 0.3  # seconds of a step
FAST = 0.001


@contextmanager
def stepping(two: TwoHosts, folder: Path, program: str, paces: Sequence[float]) -> Iterator[TwoHosts]:
    """The same hosts with a job of such ranks, one on each."""
    job, steps = uuid.uuid4().hex, folder / "steps"
    steps.write_bytes(bytes(16))
    with ExitStack() as stack:
        ranks: list[Attached] = []
        for rank, (daemon, pace) in enumerate(zip(two.daemons, paces, strict=True)):
            environ = {"RANK": str(rank), "SLURM_JOB_ID": job, "STEPS": str(steps), "PACE": str(pace)}
            ranks.append(stack.enter_context(attached(daemon, folder, program, environ=environ)))
        yield replace(two, ranks=ranks, job=job)


def recorded(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What was recorded of steps, by rank. Each daemon sees both ranks, and has one of them attached."""
    targets = [target for host in answer["hosts"] for target in host["capture"]["targets"] if target["trace"]]
    return [target["steps"] for target in sorted(targets, key=lambda target: target["rank"])]


def test_ranks_that_number_their_steps_record_the_same_ones(two: TwoHosts, tmp_path: Path):
    with stepping(two, tmp_path, PROGRAM, (FAST, FAST)) as job:
        done = job.profctl(*job.start("--rank", "0-1", "--iterations", "5", "--json"))
    common = done.json["steps"]
    assert {key: common[key] for key in ("asked", "common", "by", "unpaired")} == {
        "asked": 5,
        "common": 5,
        "by": "step",
        "unpaired": [],
    }
    for steps in recorded(done.json):  # one more on each side
        assert steps["first"] < common["first"]
        assert steps["first"] + steps["count"] > common["first"] + 5


def test_a_rank_that_is_past_the_step_says_so_and_records_nothing(two: TwoHosts, tmp_path: Path):
    with stepping(two, tmp_path, ALONE, (FAST, SLOW)) as job:
        done = job.profctl(*job.start("--rank", "0-1", "--iterations", "2", "--at-step", "3", "--json"))
        told = " ".join(job.profctl("show", done.json["capture"]).out.split())
    reasons = Counter(target["reason"] for host in done.json["hosts"] for target in host["capture"]["targets"])
    assert reasons["step_missed"] >= 1
    assert "missed: step 3 was asked for, and step " in told
    assert done.code != 0


@long
@pytest.mark.parametrize("pace", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("program", [PROGRAM, OPTIMIZER], ids=["numbered", "optimizer"])
def test_twenty_captures_have_five_common_steps_or_say_that_they_missed(two, tmp_path, program, pace):
    with stepping(two, tmp_path, program, (pace, pace)) as job:
        assert not [common for common in twenty(job) if not (common["common"] >= 5 or common["missed"])]


@long
def test_twenty_captures_of_ranks_that_do_not_step_together_say_that_they_missed(two, tmp_path):
    with stepping(two, tmp_path, ALONE, (FAST, SLOW)) as job:
        assert all(common["missed"] for common in twenty(job))


def twenty(job: TwoHosts) -> list[dict[str, Any]]:
    """What they say of common steps; printed as counts."""
    said = []
    for _ in range(20):
        answer = job.profctl(*job.start("--rank", "0-1", "--iterations", "5", "--json")).json
        assert answer["steps"] is not None, json.dumps(answer)
        said.append(answer["steps"])
    print(sorted(Counter((common["by"], min(common["common"], 5), common["missed"]) for common in said).items()))
    return said
