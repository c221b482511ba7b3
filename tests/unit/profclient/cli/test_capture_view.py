"""The JSON contract of captures, and their exit codes."""

import pytest
from profclient.cli import capture_view
from profproto.v1 import capture_pb2


def capture(*states: str) -> capture_pb2.Capture:
    targets = [capture_pb2.TargetStatus(pid=number, state=f"STATE_{state}") for number, state in enumerate(states)]
    return capture_pb2.Capture(id="c1", targets=targets)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["STORED", "STORED"], 0),
        (["BUSY", "BUSY"], 5),
        (["STORED", "FAILED"], 6),
        (["PARTIAL"], 6),
        (["FAILED"], 1),
        (["REFUSED", "BUSY"], 1),
        (["CANCELLED"], 1),
    ],
)
def test_exit_codes(states, code):
    assert capture_view.exit_code(capture(*states)) == code


def test_live_until_every_target_is_terminal():
    assert capture_view.live(capture("STORED", "COLLATING"))
    assert not capture_view.live(capture("STORED", "FAILED"))


def test_a_target_has_the_fields_of_the_contract_and_absent_is_null():
    (target,) = capture_view.capture_json(capture("FAILED"))["targets"]
    contract = "host pid rank gpu sources state reason trace start_ns end_ns events gpu_events lost not_honoured cost"
    assert set(contract.split()) | {"warnings"} <= set(target)
    assert target["state"] == "failed"
    absent = ("rank", "gpu", "reason", "trace", "start_ns", "events", "gpu_events", "cost")
    assert {name: target[name] for name in absent} == dict.fromkeys(absent)


def test_a_target_that_was_traced():
    message = capture_pb2.TargetStatus(
        pid=7,
        rank=0,
        gpus=[3],
        state=capture_pb2.STATE_PARTIAL,
        reason=capture_pb2.REASON_NO_GPU_RECORDS,
        events=0,
        lost=[capture_pb2.Loss(stage="decode", reason="bad_time", count=2)],
        cost=capture_pb2.Cost(how="unknown"),
    )
    target = capture_view.target_json(message)
    assert (target["rank"], target["gpu"], target["events"]) == (0, 3, 0)
    assert target["reason"] == "no_gpu_records"
    assert target["lost"] == [{"stage": "decode", "reason": "bad_time", "count": 2}]
    assert target["cost"] == {"how": "unknown", "step_ratio": None, "seconds": None, "detail": None}


def test_a_state_of_another_release_is_no_fault_of_ours():
    message = capture_pb2.TargetStatus(pid=7, state=999, reason=888)  # type: ignore[arg-type]  # as it may come
    assert capture_view.target_line(message) == "pid 7  unknown_999"
    assert capture_view.target_json(message)["reason"] == "unknown_888"
