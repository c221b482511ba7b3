"""Lines of the log that somebody can cause again and again."""

from __future__ import annotations

import logging

import pytest
from profd.fairness.rare_line import RareLine
from profd.limits import RARE_LINE_SECONDS

log = logging.getLogger("profd.test")


class Clock:
    """Stands still until it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object, object]]:
    return [(line.message, line.__dict__.get("why"), line.__dict__.get("untold")) for line in caplog.records]


def test_what_was_not_told_is_counted_in_the_next(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    line = RareLine(log, "it failed", clock=clock)
    for _ in range(3):
        line.tell(why="first")
    clock.now = RARE_LINE_SECONDS
    line.tell(why="later")
    assert told(caplog) == [("it failed", "first", None), ("it failed", "later", 2)]


def test_each_user_has_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    line = RareLine(log, "cut off", burst=2, clock=Clock())
    for uid in (1, 1, 1, 1, 2):
        line.tell(uid)
    assert [(record.__dict__["uid"], record.__dict__.get("untold")) for record in caplog.records] == [
        (1, None),
        (1, None),
        (2, 2),
    ]


def test_the_end_of_what_lasts_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    line = RareLine(log, "it failed", level=logging.ERROR, clock=clock)
    line.over()
    line.tell(why="first")
    line.tell(why="second")
    line.over()  # too early to say
    clock.now = RARE_LINE_SECONDS
    for _ in range(2):
        line.over()
    assert told(caplog) == [("it failed", "first", None), ("over: it failed", None, 1)]
