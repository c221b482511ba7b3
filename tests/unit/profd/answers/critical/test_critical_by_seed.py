"""Gains that are played, against a machine that is played again without the thing: seeded programs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.answers.critical.answer import critical

from tests.corpus.answers import seeds
from tests.support.played_machine import Do, Instruction, Launch, Wait, events, lasts
from tests.support.stepped_traces import stored

STEPS = 6
OPERATORS = ("load", "forward", "loss")
KERNELS = ("gemm", "relu", "ncclAllReduce")


def program(seed: int, hidden: float = 0.0) -> list[Instruction]:
    """Bound by the host, the device, or both in turn; on two streams.

    `hidden`: so likely work of the second stream waits for the first, which no row of a trace says.
    """
    choose = random.Random(seed)
    host, device = choose.choice([(200, 20), (20, 200), (80, 80)])
    found: list[Instruction] = []
    for _ in range(choose.randint(4, 12)):
        found.append(Do(choose.choice(OPERATORS), choose.randint(1, host)))
        for _ in range(choose.randint(0, 3)):
            stream = choose.randint(0, 1)
            after = 0 if stream and choose.random() < hidden else -1
            found.append(Launch(choose.choice(KERNELS), choose.randint(5, device), stream, after))
        if choose.random() < 0.2:
            found.append(Wait())
    found.append(Launch("gemm", 30))
    return [*found, Wait()] if choose.random() < 0.5 else found


def gains(instructions: list[Instruction], answer: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(as played, as it is) of each name, and of waits."""
    for row in answer["rows"]:
        if row["without_ns"] is not None and row["name"] in (*OPERATORS, *KERNELS):
            yield row["without_ns"], lasts(instructions, STEPS, without=row["name"])
    if answer["without_waits_ns"] is not None:
        yield answer["without_waits_ns"], lasts(instructions, STEPS, without="waits")


@pytest.mark.parametrize("seed", seeds("critical"))
def test_gains_are_those_of_a_run_without_it(seed: int, tmp_path: Path) -> None:
    instructions = program(seed)
    answer = critical(stored(events(instructions, STEPS), tmp_path))
    whole = answer["path"]["duration_ns"]
    assert whole == lasts(instructions, STEPS)
    assert sum(ns for name, ns in answer["path"].items() if name != "duration_ns") == whole
    for played, truth in gains(instructions, answer):
        assert played == pytest.approx(truth, rel=0.003)
    for row in answer["rows"]:  # what is not on the path costs nothing
        assert row["without_ns"] is None or whole - row["without_ns"] <= row["path_ns"]


def test_waits_of_streams_that_were_never_needed_are_not_known(tmp_path: Path) -> None:
    """Then the gain is too large; seldom by much."""
    found = []
    for seed in seeds("critical"):
        instructions = program(seed, hidden=0.5)
        found += gains(instructions, critical(stored(events(instructions, STEPS), tmp_path / str(seed))))
    close = [played == pytest.approx(truth, rel=0.1) for played, truth in found]
    assert sum(close) >= 0.95 * len(close)
    assert sum(played < 0.99 * truth for played, truth in found) > 0  # else this says nothing
