"""The JSON contract of captures, and their exit codes."""

import pytest
from profclient import as_json
from profclient.cli import capture_view
from profproto.v1 import capture_pb2

SECOND_NS = 1_000_000_000


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
        (["REFUSED", "BUSY"], 5),
        (["STORED", "BUSY"], 6),
        (["CANCELLED"], 1),
    ],
)
def test_exit_codes(states, code):
    assert capture_view.exit_code(capture(*states)) == code


def test_live_until_every_target_is_terminal():
    assert capture_view.live(capture("STORED", "COLLATING"))
    assert not capture_view.live(capture("STORED", "FAILED"))


def test_a_target_has_the_fields_of_the_contract_and_absent_is_null():
    (target,) = as_json.capture_json(capture("FAILED"))["targets"]
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
    target = as_json.target_json(message)
    assert (target["rank"], target["gpu"], target["events"]) == (0, 3, 0)
    assert target["reason"] == "no_gpu_records"
    assert target["lost"] == [{"stage": "decode", "reason": "bad_time", "count": 2}]
    assert target["cost"] == {"how": "unknown", "step_ratio": None, "seconds": None, "detail": None}


def test_what_a_process_took_of_the_host():
    during = capture_pb2.Stretch(
        lasted_ns=2 * SECOND_NS, cpu_ns=SECOND_NS, run_queue_ns=SECOND_NS // 2, waits=2469, preemptions=3
    )
    load = capture_pb2.Load(during=during, after=capture_pb2.Stretch(lasted_ns=SECOND_NS, cpu_ns=SECOND_NS))
    told = as_json.target_json(capture_pb2.TargetStatus(load=load))["load"]
    assert told["before"] is None
    assert told["during"] == {
        "lasted_ns": 2 * SECOND_NS,
        "cpu_ns": SECOND_NS,
        "run_queue_ns": SECOND_NS // 2,
        "waits": 2469,
        "preemptions": 3,
    }
    assert capture_view.load_line(load) == (
        "during 0.50 cores, 0.25 threads waiting for one, 1,234 waits and 1.5 preemptions a second; "
        "after 1.00 cores, 0.00 threads waiting for one, 0 waits and 0 preemptions a second"
    )


def test_of_a_window_that_nobody_saw_nothing_is_said():
    load = capture_pb2.Load(after=capture_pb2.Stretch(lasted_ns=SECOND_NS))
    assert capture_view.load_line(load) == ""
    told = as_json.target_json(capture_pb2.TargetStatus())["load"]
    assert told == {"before": None, "during": None, "after": None}


def test_a_state_of_another_release_is_no_fault_of_ours():
    message = capture_pb2.TargetStatus(pid=7, state=999, reason=888)  # type: ignore[arg-type]  # as it may come
    assert capture_view.target_line(message) == "pid 7  unknown_999"
    assert as_json.target_json(message)["reason"] == "unknown_888"


@pytest.mark.parametrize(
    ("ranks", "source", "compared"), [((0, 1), "sdk", True), ((0, 1), "pyspy", False), ((0, 0), "sdk", False)]
)
def test_ranks_are_compared_where_several_of_one_job_were_recorded(ranks, source, compared):
    """Samples alone have no collectives, and what a rank starts has that rank, too."""
    of_job = [
        capture_pb2.TargetStatus(pid=1 + at, rank=rank, trace="t", sources=[source], job="j")
        for at, rank in enumerate(ranks)
    ]
    found = capture_view.of_ranks(capture_pb2.Capture(id="c1", targets=of_job))
    assert found == (["profctl ranks c1"] if compared else [])
