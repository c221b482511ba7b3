"""How much one user may record within an hour."""

from __future__ import annotations

import pytest
from profd.capture.recorded_seconds import RecordedSeconds
from profd.fairness.shares import Refused
from profd.limits import RECORDED_SECONDS_PER_HOUR

from tests.support.captures import ALICE, BOB, ROOT

MOST = RECORDED_SECONDS_PER_HOUR


class Clock:
    """Stands still until it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_recorded_falls_off_within_an_hour() -> None:
    clock = Clock()
    recorded = RecordedSeconds(clock)
    for _ in range(2):
        recorded.add(ALICE.uid, MOST / 2)
    recorded.check(BOB, 0.0)
    recorded.check(ROOT, 2 * MOST)
    with pytest.raises(Refused) as caught:
        recorded.check(ALICE, MOST / 4)
    assert (caught.value.use, caught.value.retry_seconds) == (1.25 * MOST, 900)
    clock.now = 901.0
    recorded.check(ALICE, MOST / 4)


def test_what_was_beyond_it_takes_longer() -> None:
    clock = Clock()
    recorded = RecordedSeconds(clock)
    recorded.add(ALICE.uid, 3 * MOST)
    clock.now = 7190.0
    with pytest.raises(Refused):
        recorded.check(ALICE, 0.0)
    clock.now = 7210.0
    recorded.check(ALICE, 0.0)


def test_users_of_long_ago_are_forgotten() -> None:
    recorded = RecordedSeconds(Clock())
    for uid in range(10_000):
        recorded.add(uid, 1.0)
    assert len(recorded._used) <= 4096
