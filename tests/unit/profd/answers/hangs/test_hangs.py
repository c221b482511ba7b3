"""Which rank is missing: jobs made by seed, each with one plant, and what a dump may not be."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from profd.answers.hangs.look import ProcessLook, State, Verdict
from profd.answers.hangs.matching import judge
from profd.answers.hangs.memory import CALLS_MAX, Call, Memory, Numbers, memory_from_untrusted
from profd.errors import BadInput
from profd.model.frame import Frame

SECOND = 1_000_000_000
NOW = 10_000 * SECOND
SEEDS = range(30)


class Job:
    """Ranks that call collectives of the group of all, every 10 ms, until one does not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ranks = self.random.randint(3, 8)
        self.odd = self.random.randrange(self.ranks)
        self.last = self.random.randint(3, 40)
        self.calls: list[list[Call]] = [[] for _ in range(self.ranks)]
        for sequence in range(1, self.last):
            for rank in range(self.ranks):
                self.call(rank, sequence, over=True)

    def call(self, rank: int, sequence: int, **changes: Any) -> None:
        """Made 100 s ago, ranks within 2 ms."""
        at = NOW - 100 * SECOND - (self.last - sequence) * SECOND // 100 + self.random.randrange(2_000_000)
        call = Call("0", "default_pg", sequence, "all_reduce", 100, False, at)
        self.calls[rank].append(replace(call, **changes))

    def looks(self) -> list[ProcessLook]:
        """As they stand."""
        return [self._look(rank) for rank in range(self.ranks)]

    def _look(self, rank: int) -> ProcessLook:
        calls = self.calls[rank]
        groups = {call.group for call in calls}
        numbers = {
            group: Numbers(
                max(call.sequence for call in calls if call.group == group),
                max((call.sequence for call in calls if call.group == group and call.over), default=-1),
            )
            for group in groups
        }
        at = Frame(f"line_of_{rank}", "train.py", 10 + rank)
        return ProcessLook(1000 + rank, rank, numbers, numbers, Memory(numbers, tuple(calls)), at, None)

    def others(self) -> list[int]:
        """All but the odd one."""
        return [rank for rank in range(self.ranks) if rank != self.odd]


def judged(job: Job, now: int = NOW) -> Verdict:
    return judge(job.looks(), now, job.ranks)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_that_left_out_a_call_is_named_with_its_line(seed: int) -> None:
    job = Job(seed)
    for rank in job.others():
        job.call(rank, job.last)
    said = judged(job)
    [missing] = said.missing
    assert (said.state, missing.name, said.group, said.sequence) == (
        State.HANG,
        f"rank {job.odd}",
        "default_pg",
        job.last,
    )
    assert missing.last == job.last - 1
    assert f"line_of_{job.odd} (train.py:{10 + job.odd})" in " ".join(said.sentences)
    assert said.waited_ns is not None
    assert 99 * SECOND < said.waited_ns < 101 * SECOND


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_with_another_size_is_named(seed: int) -> None:
    job = Job(seed)
    for rank in range(job.ranks):
        job.call(rank, job.last, **({"elements": 50} if rank == job.odd else {}))
    said = judged(job)
    assert (said.state, said.sequence) == (State.MISMATCH, job.last)
    assert f"rank {job.odd} came with 50 elements" in said.sentences[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_that_called_something_else_is_named(seed: int) -> None:
    job = Job(seed)
    for rank in range(job.ranks):
        job.call(rank, job.last, **({"operation": "broadcast"} if rank == job.odd else {}))
    said = judged(job)
    assert (said.state, said.sequence) == (State.MISMATCH, job.last)
    assert f"rank {job.odd} called broadcast" in said.sentences[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_whose_process_has_ended_is_named(seed: int) -> None:
    job = Job(seed)
    for rank in job.others():
        job.call(rank, job.last)
    looks = [look for look in job.looks() if look.rank != job.odd]
    said = judge(looks, NOW, job.ranks)
    assert [each.name for each in said.missing] == [f"rank {job.odd}"]
    assert "has no process here" in " ".join(said.sentences)


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_groups_in_two_orders_are_a_circle(seed: int, used: bool) -> None:
    job = Job(seed)
    first, second = job.random.sample(range(job.ranks), 2)
    for rank, (own, other) in ((first, ("1", "2")), (second, ("2", "1"))):
        for group in (own, other) if used else ():
            job.call(rank, 1, group=group, described="", over=True)
        job.call(rank, 2, group=own, described="")
    for rank in range(job.ranks):
        if rank not in (first, second):
            job.call(rank, job.last)
    said = judged(job)
    assert said.state is State.HANG
    assert {*said.waiting, *(each.name for each in said.missing)} == {f"rank {first}", f"rank {second}"}
    assert "different orders" in " ".join(said.sentences)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cause_is_behind_ranks_that_wait_elsewhere(seed: int) -> None:
    """All but two wait for the first of these, which waits for the second in a group of the two."""
    job = Job(seed)
    first, second = job.random.sample(range(job.ranks), 2)
    for rank in (first, second):
        job.call(rank, 1, group="1", described="", over=True)
    job.call(first, 2, group="1", described="")
    for rank in range(job.ranks):
        if rank not in (first, second):
            job.call(rank, job.last)
    said = judged(job)
    assert (said.waiting, [each.name for each in said.missing]) == ((f"rank {first}",), [f"rank {second}"])


def late(job: Job) -> list[ProcessLook]:
    for rank in job.others():
        job.call(rank, job.last)
    return job.looks()


def test_nothing_is_said_of_a_rank_that_is_late_for_a_moment() -> None:
    job = Job(1)
    looks = late(job)
    said = judge(looks, NOW - 99 * SECOND, job.ranks)  # one second after they came
    assert said.state is State.HEALTHY
    assert f"for rank {job.odd}" in said.sentences[0]


def test_nothing_is_said_within_three_times_the_longest_pause() -> None:
    job = Job(1)
    for rank in range(job.ranks):  # a pause of 50 s, as of a checkpoint, between 1 and 2
        calls = job.calls[rank]
        job.calls[rank] = [
            replace(call, created_ns=call.created_ns - 50 * SECOND * (call.sequence < 3)) for call in calls
        ]
    looks = late(job)
    assert judge(looks, NOW, job.ranks).state is State.HEALTHY
    assert judge(looks, NOW + 51 * SECOND, job.ranks).state is State.HANG


def moved(look: ProcessLook) -> ProcessLook:
    return replace(look, before={"0": Numbers(1, 1)})


def finished(look: ProcessLook) -> ProcessLook:
    numbers = {"0": Numbers(7, 7)}
    return replace(look, before=numbers, after=numbers)


@pytest.mark.parametrize("change", [moved, finished])
def test_a_job_that_goes_on_is_healthy(change: Callable[[ProcessLook], ProcessLook]) -> None:
    assert judge([change(look) for look in late(Job(2))], NOW).state is State.HEALTHY


def test_a_rank_that_goes_on_was_not_asked_and_is_not_called_missing() -> None:
    job = Job(3)
    looks = late(job)
    looks[job.odd] = replace(moved(looks[job.odd]), memory=None)
    assert judge(looks, NOW, job.ranks).missing == ()


def test_where_nobody_says_anything_nothing_is_known() -> None:
    said = judge([ProcessLook(7, 0, None, None, why="its agent has not answered within 2 s")], NOW)
    assert (said.state, said.notes) == (State.UNKNOWN, ("rank 0: its agent has not answered within 2 s",))


def test_an_earlier_difference_tells_where_a_call_was_left_out() -> None:
    job = Job(4)
    late(job)
    job.calls[job.odd] = [
        replace(call, operation="broadcast") if call.sequence == 2 else call for call in job.calls[job.odd]
    ]
    assert f"From 2 on rank {job.odd} does not match" in " ".join(judged(job).sentences)


DUMP = (
    b'{"version":"2.10","pg_status":{"0":{"last_completed_collective":"20","last_enqueued_collective":"21",'
    b'"last_started_collective":"-1"}},"entries":[{"collective_seq_id":21,"input_sizes":[[100],[2,3]],"is_p2p":false,'
    b'"process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce","retired":false,"state":"scheduled",'
    b'"time_created_ns":1795744266132674631}]}'
)


def test_a_dump_of_torch_2_13() -> None:
    said = memory_from_untrusted(DUMP)
    assert said.numbers == {"0": Numbers(21, 20)}
    assert said.calls == (Call("0", "default_pg", 21, "all_reduce", 106, False, 1795744266132674631),)


@pytest.mark.parametrize(
    "dump",
    [
        b"",
        b"[]",
        b'{"pg_status":{"0":{"last_enqueued_collective":"' + b"9" * 4000 + b'"}}}',
        b'{"pg_status":{"0":{"last_enqueued_collective":' + b"9" * 40 + b"}}}",
        b'{"entries":[{"time_created_ns":-7}]}',
        b'{"entries":' + b"[" * 100_000,
        b'{"entries":[' + b",".join([b'{"process_group":["0"]}'] * (CALLS_MAX + 1)) + b"]}",
        b'{"entries":[{"profiling_name":"\xff"}]}',
    ],
    ids=["empty", "list", "long", "large", "negative", "deep", "many", "text"],
)
def test_a_dump_that_is_none(dump: bytes) -> None:
    with pytest.raises(BadInput):
        memory_from_untrusted(dump)


def test_a_dump_that_lies_costs_no_more_than_its_length() -> None:
    """Sizes that are none, names that play with terminals, one sequence twice."""
    entry = (
        DUMP[DUMP.index(b'"entries":[') + 11 : -2]
        .replace(b"[100],[2,3]", b'["x"],-1')
        .replace(b"default_pg", b"\\u001b[2J")
    )
    said = memory_from_untrusted(b'{"entries":[' + b",".join([entry] * 1000) + b"]}")
    assert {(call.elements, call.described) for call in said.calls} == {(None, "\N{REPLACEMENT CHARACTER}[2J")}
    numbers = {"0": Numbers(21, 20)}
    looks = [ProcessLook(pid, pid, numbers, numbers, replace(said, numbers=numbers)) for pid in range(8)]
    assert judge(looks, 1795744266132674631 + 60 * SECOND).state is State.HANG


def test_groups_without_number_are_not_taken_for_partners_of_each_other() -> None:
    """Each of them would name all others: 4,000 groups of two processes took 7 s, 50,000 more memory than there is."""
    looks = []
    for rank in range(2):
        calls = tuple(Call(f"{rank}.{group}", "", 1, "all_reduce", 1, False, NOW - 60 * SECOND) for group in range(50))
        numbers = {"0": Numbers(1, -1)}
        looks.append(ProcessLook(rank, rank, numbers, numbers, Memory(numbers, calls)))
    assert judge(looks, NOW).missing == ()
    assert len(judge([replace(look, memory=_of_first(look, 20)) for look in looks], NOW).missing) == 20


def _of_first(look: ProcessLook, groups: int) -> Memory:
    assert look.memory is not None
    return replace(look.memory, calls=look.memory.calls[:groups])
