"""Findings about calls that are too many and too small: operators in a loop, and collectives of one tensor each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.answers.detectors import operator_loop, single_collectives
from profd.answers.finding import Silence, Verdict
from profd.events import Kind

from tests.support.stepped_traces import BACKWARD, MEASURED, SAMPLED, STEP_US, US, call, facts, kernel, training
from tests.support.tables import Event
from tests.support.verdicts import found, silent

SAMPLES = 1  # the track of what samples saw of the thread of the steps
LOSS, POW = "/home/ann/train.py(10): focal_loss", "torch/_tensor.py(40): _wrap"
ENGINE = "torch/autograd/graph.py(966): _engine_run_backward"


def looping(
    n: int, *, count: int = 500, us: float = 0.2, name: str = LOSS, lasts: float = 600, step: int = STEP_US
) -> list[Event]:
    """Operators, one in each, in a function that samples see; a part of it in torch's wrapper; then the backward."""
    at = n * step
    loss = call(name, at, lasts, Kind.SAMPLE, thread=SAMPLES)
    wrapped = call(POW, at + 100, 50, Kind.SAMPLE, thread=SAMPLES, parent=loss)
    engine = call(ENGINE, at + lasts + 50, 300, Kind.SAMPLE, thread=SAMPLES)
    rows = [loss, wrapped, engine]
    for k in range(count):
        op = call("aten::select", at + 5 + (lasts - 10) / count * k, us)
        rows += [op, call("aten::as_strided", at + 5 + (lasts - 10) / count * k, us / 2, parent=op)]
    return rows


def asked(path: Path, *, step: int = STEP_US, rows: int = 1 << 19, **case: Any) -> Verdict:
    events = [event for n in range(MEASURED + 1) for event in looping(n, step=step, **case)]
    steps = [call(f"ProfilerStep#{n}", n * step, step, Kind.USER_ANNOTATION) for n in range(MEASURED + 1)]
    return operator_loop.look(facts([*events, *steps], path, rows, tracks=SAMPLED))


@pytest.mark.parametrize("rows", [1 << 19, 700], ids=["whole", "in-segments"])
def test_a_function_that_loops_over_elements(rows: int, tmp_path: Path) -> None:
    """GIVEN 500 operators a step, another within each WHEN samples see a function around them THEN it is named, with
    what torch's own wrappers take, and the backward pass is a part of the bound."""
    finding = found(asked(tmp_path, rows=rows))
    assert finding.sentence.startswith(
        "focal_loss (train.py:10) calls 500 operators a step, half of them shorter than 200 ns: 60 % of the time"
    )
    assert finding.bound_ns == MEASURED * (600 + 300) * US
    assert finding.numbers["operators"] == MEASURED * 500


@pytest.mark.parametrize(
    "case",
    [
        {"count": 499},
        {"us": 20, "lasts": 15_000, "step": 20_000},
        {"name": "torch/optim/adam.py(3): adam"},
        {"lasts": 199},
    ],
    ids=["few", "long", "torch", "short"],
)
def test_operators_that_are_few_or_large_or_not_the_program_s(case: Any, tmp_path: Path) -> None:
    assert silent(asked(tmp_path, **case))


def test_operators_beside_a_device_are_left_to_the_rule_of_small_kernels(tmp_path: Path) -> None:
    rows = training(lambda n: [*looping(n), *kernel(n * STEP_US, 100)])
    assert silent(operator_loop.look(facts(rows, tmp_path, tracks=SAMPLED)))


def test_operators_that_nobody_sampled(tmp_path: Path) -> None:
    verdict = operator_loop.look(facts(training(lambda n: [call("aten::mm", n * STEP_US, 1)]), tmp_path))
    assert isinstance(verdict, Silence)
    assert "samples" in verdict.lacking


def talking(n: int, *, count: int = 20, us: float = 5, between: str = "aten::div_", late: int = 0) -> list[Event]:
    """Collectives as another thread carries them out, each of which has ended before the next but for some."""
    rows = []
    for k in range(count):
        at = n * STEP_US + 10 + 40 * k
        rows += [
            call("c10d::allreduce_", at, 1),
            call("gloo:all_reduce", at + 1, us + (40 if k < late else 0), Kind.USER_ANNOTATION, BACKWARD),
            call(between, at + 30, 2),
        ]
    return rows


def alone(path: Path, **case: Any) -> Verdict:
    return single_collectives.look(facts(training(lambda n: talking(n, **case)), path))


def test_tensors_that_are_sent_one_by_one(tmp_path: Path) -> None:
    finding = found(alone(tmp_path))
    assert finding.sentence.startswith(
        "Tensors are sent one by one: 20 collectives a step (all_reduce), each waited for before the next is called, "
        "10 % of the time (5 us each)."
    )
    assert finding.bound_ns == MEASURED * 20 * 5 * US


@pytest.mark.parametrize(
    "case",
    [{"count": 19}, {"us": 4.9}, {"between": "aten::mm"}, {"late": 3, "us": 6}],
    ids=["few", "short", "computes", "several-at-once"],
)
def test_collectives_that_are_as_they_should_be(case: Any, tmp_path: Path) -> None:
    assert silent(alone(tmp_path, **case))


def test_a_tensor_of_each_step_that_is_sent_alone_is_no_run(tmp_path: Path) -> None:
    """GIVEN 20 steps with one collective each THEN they are not one after the other."""
    assert silent(single_collectives.look(facts(training(lambda n: talking(n, count=1, us=500), 21), tmp_path)))
