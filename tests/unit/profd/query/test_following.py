"""The command that helps after an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from profd.derive.steps import Steps
from profd.query.following import following
from profd.segments.meta import TraceMeta

USUAL = 100


def steps(slow: dict[int, int], n: int = 300) -> Steps:
    """So many of USUAL ns; the slow ones of so many more."""
    lasting = np.array([USUAL + slow.get(number, 0) for number in range(n)], dtype=np.int64)
    end = np.cumsum(lasting)
    names = [f"ProfilerStep#{number}" for number in range(n)]
    return Steps(end - lasting, end, names, np.zeros(n, dtype=np.int32), "ProfilerStep")


@pytest.mark.parametrize(
    ("slow", "advised"),
    [
        ({}, "profctl top t1"),
        ({7: 5000}, "profctl top t1 --step 7"),
        ({7: 5000, **dict.fromkeys(range(200, 211), 900)}, "profctl top t1 --step 200..210"),
        ({7: 50, 9: 50}, "profctl top t1"),  # chance, and no cause
        ({299: 5000}, "profctl top t1 --step 299"),
    ],
)
def test_steps_that_cost_much_are_looked_into(slow: dict[int, int], advised: str) -> None:
    assert following("t1", TraceMeta(), steps(slow), None, False) == advised


@pytest.mark.parametrize(
    ("meta", "advised"),
    [
        (
            {"capture": "c1", "pid": 7, "options": {"memory": True, "duration_ns": 2_500_000_000}},
            "profctl start --pid 7 --duration 2.5s --memory --stacks",
        ),
        ({"capture": "c1", "pid": 7, "options": {"memory": True}}, "profctl start --pid 7 --memory --stacks"),
        ({"capture": "c1", "pid": 7, "options": {"memory": True, "stacks": True}}, "profctl memory t1"),
        ({"pid": 7}, "profctl memory t1"),  # imported
    ],
)
def test_memory_that_grows_is_looked_for_in_functions(meta: dict[str, Any], advised: str) -> None:
    grows = {"rows": [{"grows": False}, {"grows": True}]}
    assert following("t1", TraceMeta(**meta), steps({7: 5000}), grows, True) == advised
    assert following("t1", TraceMeta(**meta), steps({}), {"rows": [{"grows": False}]}, False) == "profctl top t1"


@pytest.mark.parametrize(
    ("lasting", "advised"), [({}, "tree t1 --merged"), ({7: 5000}, "top t1 --step 7")], ids=["even", "slow"]
)
def test_samples_beside_operators(lasting: dict[int, int], advised: str) -> None:
    """What they saw is in no row of `top`; steps that are slow come first."""
    assert following("t1", TraceMeta(), steps(lasting), None, True) == f"profctl {advised}"


@pytest.mark.parametrize(
    ("fix", "advised"),
    [
        ("it is being built: profctl torch list", "profctl start --pid 7 --duration 5s"),
        ("build it once for this torch: profctl torch build", "profctl torch build"),
        ("build it in its image: profctl torch build --into DIR", "profctl top t1 --step 7"),
    ],
)
def test_without_operators_what_brings_them_comes_first(fix: str, advised: str) -> None:
    said = f"torch: no operators are recorded, because there is no observer of them for this torch ({fix})"
    meta = TraceMeta(capture="c1", pid=7, options={"duration_ns": 5_000_000_000}, not_honoured=["memory: no", said])
    assert following("t1", meta, steps({7: 5000}), None, True) == advised


@pytest.mark.parametrize(
    ("source", "options", "advised"),
    [
        ("sdk", {"duration_ns": 3_000_000_000}, "start --pid 7 --duration 3s --memory --stacks"),
        ("sdk", {"stacks": True}, "start --pid 7 --memory --stacks"),
        ("sdk", {"memory": True}, "top t1 --step 7"),  # allocations do not grow: it is something else
        ("kineto", {}, "top t1 --step 7"),
    ],
    ids=["usual", "stacks", "recorded", "cannot"],
)
def test_a_process_that_grows_is_recorded_with_allocations(source: str, options: dict[str, Any], advised: str) -> None:
    meta = TraceMeta(capture="c1", pid=7, source=source, options=options)
    assert following("t1", meta, steps({7: 5000}), None, False, grows=True) == f"profctl {advised}"
