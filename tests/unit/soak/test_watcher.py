"""An end is one, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from soak.watcher import Watcher


def capture(state: int, *, trace: str = "", finished: bool | None = None) -> pb.Capture:
    target = pb.TargetStatus(pid=7, state=state, trace=trace)  # type: ignore[arg-type]  # its enum is an int
    found = pb.Capture(id="c1", targets=[target])
    if state >= pb.STATE_STORED if finished is None else finished:
        found.finished_ns = 1
    return found


def told(*states: pb.Capture) -> list[str]:
    said: list[str] = []
    watcher = Watcher(Path("/nowhere"), said.append)
    for state in states:
        watcher.look([state])
    return said


def test_states_before_the_end_may_change() -> None:
    recording, stored = capture(pb.STATE_RECORDING), capture(pb.STATE_STORED, trace="t")
    assert told(recording, capture(pb.STATE_DRAINING), recording, stored, stored) == []


@pytest.mark.parametrize(
    "after", [capture(pb.STATE_DRAINING), capture(pb.STATE_PARTIAL, trace="t"), capture(pb.STATE_FAILED, trace="t")]
)
def test_an_end_that_changes_is_told(after: pb.Capture) -> None:
    assert len(told(capture(pb.STATE_FAILED), after)) == 1


def test_an_end_without_its_time_is_told_and_a_time_without_an_end() -> None:
    assert len(told(capture(pb.STATE_STORED, finished=False))) == 1
    assert len(told(capture(pb.STATE_RECORDING, finished=True))) == 1


def test_a_retry_may_bring_another_end() -> None:
    said: list[str] = []
    watcher = Watcher(Path("/nowhere"), said.append)
    watcher.look([capture(pb.STATE_FAILED)])
    with watcher.retrying("c1"):
        watcher.look([capture(pb.STATE_FAILED)])
    watcher.look([capture(pb.STATE_FAILED)])  # it was asked for before
    watcher.look([capture(pb.STATE_COLLATING)])
    watcher.look([capture(pb.STATE_STORED, trace="t")])
    assert said == []
    watcher.look([capture(pb.STATE_FAILED)])
    assert len(said) == 1
