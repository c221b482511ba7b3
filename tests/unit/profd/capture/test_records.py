"""Records as JSON, and one state for many."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.capture.records import CaptureRecord, TargetRecord, gravest
from profd.errors import BadInput
from profd.limits import SAID_CHARACTERS_MAX
from profd.model.capture import Cost, Fleet, Loss, Options, Phase, RawFile, Reason, State
from profd.model.said import few
from profd.model.traits import SAMPLED, Traits
from profproto.v1 import capture_pb2 as pb

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
    record.fleet = Fleet("f0123456789ab", "node1", 2, "hosts")
    value = json.loads(json.dumps(record.to_json()))
    assert CaptureRecord.from_json(value) == record
    value["newer"] = 1
    value["targets"][0]["newer"] = 1
    assert CaptureRecord.from_json(value) == record


OLDER = {  # as records were written before options had groups, and targets traits
    "id": "c1",
    "request_id": "r",
    "owner": "alice",
    "owner_uid": 3,
    "created_ns": 7,
    "options": {
        "duration_ns": 5,
        "iterations": 0,
        "shapes": True,
        "stacks": False,
        "memory": False,
        "modules": False,
        "flops": False,
        "source": "pyspy",
        "strict": True,
        "force": False,
        "start_at_ns": None,
        "sample_hz": 0.5,
        "native": True,
        "c_calls": False,
        "torch": "auto",
        "max_overhead": None,
        "port": 9999,
        "collect_timeout_ns": 6,
        "no_gpu_metrics": True,
        "last_ns": 7,
        "gpu_fallback": True,
    },
    "targets": [
        {"host": "h", "pid": 1, "start_ticks": 2, "uid": 3, "user": "u", "command": "c", "source": "pyspy", "state": 1}
    ],
}


def test_records_of_before_are_read_and_options_stay_flat() -> None:
    record = CaptureRecord.from_json(OLDER)
    asked = record.options
    assert (asked.shapes, asked.native, asked.last_ns, asked.torch, asked.strict) == (True, True, 7, "auto", True)
    assert record.to_json()["options"] == OLDER["options"]
    (target,) = record.targets
    assert (target.traits, target.known_traits) == (None, SAMPLED)
    target.traits = Traits(steps=False)
    again = CaptureRecord.from_json(json.loads(json.dumps(record.to_json())))
    assert again.targets[0].known_traits == Traits(steps=False)


def test_what_an_earlier_build_kept_at_any_length_is_cut() -> None:
    many = [str(number) for number in range(2700)]
    target = TargetRecord("host", 1, 2, 3, "alice", "python", not_honoured=many, warnings=many, message="x" * 100_000)
    record = CaptureRecord("c1", "r", "alice", 3, 7, Options(duration_ns=5), targets=[target])
    [read] = CaptureRecord.from_json(record.to_json()).targets
    assert read.not_honoured == read.warnings == few(many)
    assert len(read.message) <= SAID_CHARACTERS_MAX


def test_options_are_those_of_the_contract() -> None:
    assert sorted(field.name for field in dataclasses.fields(Options)) == sorted(pb.Options.DESCRIPTOR.fields_by_name)


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
