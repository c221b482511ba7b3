"""Records as JSON, and one state for many."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.capture.model import Cost, Loss, Options, Phase, RawFile, Reason, State
from profd.capture.records import CaptureRecord, TargetRecord, gravest
from profd.errors import BadInput

STATES = st.sampled_from(list(State))


def test_json_and_back() -> None:
    target = TargetRecord(
        "host", 1, 2, 3, "alice", "python", rank=0, gpus=(0, 1), state=State.PARTIAL, reason=Reason.LOSSES
    )
    target.lost = [Loss("source", "full", 2)]
    target.waterfall = [Phase("window", 5)]
    target.cost = Cost("measured", 1.2)
    target.files = [RawFile("/x", "chrome")]
    record = CaptureRecord("c1", "r", "alice", 3, 7, Options(duration_ns=5, sample_hz=0.5), targets=[target])
    value = json.loads(json.dumps(record.to_json()))
    assert CaptureRecord.from_json(value) == record
    value["newer"] = 1
    value["targets"][0]["newer"] = 1
    assert CaptureRecord.from_json(value) == record


@pytest.mark.parametrize("value", [{}, {"id": 7}, {"id": "c", "targets": [{"state": 99}]}])
def test_damaged_json(value: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="damaged"):
        CaptureRecord.from_json(value)


@given(st.lists(STATES, min_size=1))
def test_one_state_for_many(states: list[State]) -> None:
    one = gravest(states)
    assert one in states
    assert one.terminal == all(state.terminal for state in states)
    assert (one is State.STORED) == (set(states) == {State.STORED})


def test_the_worst_ending_counts() -> None:
    assert gravest([State.STORED, State.PARTIAL]) is State.PARTIAL
    assert gravest([State.BUSY, State.FAILED, State.STORED]) is State.FAILED
    assert gravest([State.RECORDING, State.FAILED, State.ARMED]) is State.ARMED
