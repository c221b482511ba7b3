"""Growth of memory told from jumps, warm-ups and garbage, and what the summary says of it."""

from __future__ import annotations

import numpy as np
import pytest
from profd.derive.steps import Steps
from profd.model.resident import LOOKS_KEPT, Resident, ResidentLook
from profd.query.resident import GROWN_MIN, LOOKS_MIN, as_json, steady, too_few

from tests.support.resident import MB, SECOND, looked

N = 40
NONE = np.zeros(0, dtype=np.int64)
NO_STEPS = Steps(NONE, NONE, [], np.zeros(0, dtype=np.int32), "")


STEADY = {
    "steady": [100 * MB + n * MB for n in range(N)],
    "by-pages": [100 * MB + n // 3 * 2 * MB for n in range(N)],
    "buffers": [100 * MB + n * MB + n % 3 * 9 * MB for n in range(N)],
    "busy-host": [100 * MB + min(n, 20) * MB // 2 + max(0, n - 20) * 2 * MB for n in range(N)],
    "slower": [100 * MB + n * MB // 4 for n in range(LOOKS_MIN)],
}
NOT_STEADY = {
    "level": [100 * MB] * N,
    "shrinking": [100 * MB - n * MB for n in range(N)],
    "jump": [100 * MB + (n > 20) * 50 * MB for n in range(N)],  # an allocator takes a block
    "jump-and-more": [100 * MB + (n > 20) * 50 * MB + n * MB // 2 for n in range(N)],
    "sawtooth": [100 * MB + n % 11 * 5 * MB for n in range(N)],  # garbage is collected
    "warm-up": [200 * MB - int(100 * MB * 0.85**n) for n in range(N)],
    "slow-warm-up": [200 * MB - int(100 * MB * 0.94**n) for n in range(N)],
    "warm-up-ends": [100 * MB + min(n, 22) * MB for n in range(N)],
    "little": [100 * MB + n * (GROWN_MIN // N // 2) for n in range(N)],
    "beside-much": [100_000 * MB + n * MB for n in range(N)],
}


@pytest.mark.parametrize("own", STEADY.values(), ids=STEADY)
def test_steady_growth(own: list[int]) -> None:
    rate = (own[-1] - own[0]) / (len(own) - 1)
    grown = steady(looked(own))
    assert grown is not None
    assert abs(grown - rate * len(own)) < 12 * MB


@pytest.mark.parametrize("own", NOT_STEADY.values(), ids=NOT_STEADY)
def test_what_is_no_steady_growth(own: list[int]) -> None:
    assert steady(looked(own)) is None


@pytest.mark.parametrize("looks", [LOOKS_MIN, N, LOOKS_KEPT])
def test_buffers_that_come_and_go_are_no_growth(looks: int) -> None:
    noise = np.random.default_rng(7).integers(100 * MB, 150 * MB, (2000, looks))
    assert sum(steady(looked(own)) is not None for own in noise.tolist()) <= 2


@pytest.mark.parametrize(
    ("looks", "lasting"), [(0, 0), (1, 0), (LOOKS_MIN - 1, 5.0), (LOOKS_MIN, 1.4)], ids=["none", "one", "few", "short"]
)
def test_too_few_looks_say_nothing(looks: int, lasting: float) -> None:
    found = looked([100 * MB + n * 9 * MB for n in range(looks)], lasting)
    assert too_few(found)
    assert steady(found) is None


def test_unknown_is_not_zero() -> None:
    assert as_json(Resident(), NO_STEPS) is None
    once = as_json(looked([5 * MB]), NO_STEPS)
    assert once is not None
    assert (once["looks"], once["end_bytes"]) == (1, 55 * MB)
    assert (once["grown_bytes"], once["grown_per_step_bytes"], once["steady"]) == (None, None, None)


def test_a_step_has_its_share_of_the_growth() -> None:
    begins = np.arange(10, dtype=np.int64) * SECOND // 10
    steps = Steps(begins, begins + SECOND // 10, ["ProfilerStep#1"] * 10, np.zeros(10, dtype=np.int32), "ProfilerStep")
    found = as_json(looked([MB, 3 * MB, 2 * MB, 21 * MB], 4.0), steps)
    assert found == {
        "looks": 4,
        "lasted_ns": 4 * SECOND,
        "begin_bytes": 51 * MB,
        "end_bytes": 71 * MB,
        "most_bytes": 71 * MB,
        "own_begin_bytes": MB,
        "own_end_bytes": 21 * MB,
        "grown_bytes": 20 * MB,
        "grown_per_step_bytes": MB // 2,
        "steady": None,
    }


def test_what_files_and_shared_memory_hold_is_no_growth() -> None:
    """A data set that is mapped, or profd's own arena."""
    mapped = Resident([ResidentLook(n * SECOND // 10, (100 + 9 * n) * MB, 50 * MB) for n in range(N)])
    assert steady(mapped) is None
    assert mapped.grown_bytes == 0
