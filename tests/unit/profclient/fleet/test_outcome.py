"""What a capture of many hosts is called, and its exit code."""

from typing import Any

import pytest
from profclient.fleet.machine import HostState, Stand
from profclient.fleet.outcome import Outcome
from profproto.v1 import capture_pb2 as pb


def over(*states: Any, rank: int = 0) -> HostState:
    targets = [pb.TargetStatus(pid=at, state=state, rank=rank + at) for at, state in enumerate(states)]
    return HostState(Stand.OVER, capture=pb.Capture(id="c1", targets=targets))


def out(kind: str = "unreachable", stand: Stand = Stand.OUT) -> HostState:
    return HostState(stand, "a reason", kind)


def outcome(*hosts: HostState, **more: Any) -> Outcome:
    return Outcome("f0123456789ab", {f"n{at}": host for at, host in enumerate(hosts)}, **more)


STORED, PARTIAL, FAILED, BUSY = pb.STATE_STORED, pb.STATE_PARTIAL, pb.STATE_FAILED, pb.STATE_BUSY


def lost(*states: Any) -> HostState:
    found = over(*states)
    found.stand, found.why, found.kind = Stand.LOST, "the carrier ended", "unreachable"
    return found


@pytest.mark.parametrize(
    ("found", "state", "code"),
    [
        (outcome(over(STORED), over(STORED, STORED)), "stored", 0),
        (outcome(over(STORED), out("not_found", Stand.NOTHING)), "stored", 0),
        (outcome(over(STORED), out()), "partial", 6),
        (outcome(over(STORED), out(stand=Stand.LOST)), "partial", 6),
        (outcome(over(STORED, FAILED)), "partial", 6),
        (outcome(over(PARTIAL)), "partial", 6),
        (outcome(over(STORED), ranks=(0, 7)), "partial", 6),
        (outcome(over(STORED), ranks=(0,)), "stored", 0),
        (outcome(over(BUSY), over(BUSY)), "busy", 5),
        (outcome(out("busy"), out("busy")), "busy", 5),
        (outcome(over(BUSY), out("busy")), "busy", 5),
        # Somebody is busy, and nothing was recorded: to try again is worth it, whatever else is missing.
        (outcome(out("busy"), out("denied")), "busy", 5),
        (outcome(out("busy"), out("not_found", Stand.NOTHING)), "busy", 5),
        (outcome(over(BUSY, FAILED), out("unreachable")), "busy", 5),
        (outcome(over(STORED), out("busy")), "partial", 6),
        (outcome(out("busy"), out("interrupted")), "failed", 1),
        (outcome(over(FAILED)), "failed", 1),
        (outcome(over(pb.STATE_CANCELLED)), "cancelled", 1),
        (outcome(over(pb.STATE_RECORDING)), "recording", 1),
        # What became of it on a host that does not answer any more is not known, and nothing is waited for.
        (outcome(lost(pb.STATE_RECORDING), lost(pb.STATE_RECORDING)), "lost", 7),
        (outcome(lost(pb.STATE_RECORDING), over(STORED)), "partial", 6),
        (outcome(out("unreachable"), out("unreachable")), "failed", 7),
        (outcome(out("denied")), "failed", 4),
        (outcome(out("not_found", Stand.NOTHING)), "failed", 3),
        (outcome(out("denied"), out("unreachable")), "failed", 1),
        (outcome(out("interrupted")), "failed", 130),
    ],
)
def test_states_and_codes(found, state, code):
    assert (found.state, found.exit_code) == (state, code)


def test_a_rank_that_a_host_has_and_cannot_record_is_not_one_that_no_host_has():
    held = HostState(Stand.OUT, "held", "busy", unable_ranks=[1])
    assert outcome(over(STORED), held, ranks=(0, 1, 7)).missing_ranks == [7]


def test_hosts_that_may_record_later_are_named():
    found = outcome(over(STORED, BUSY), out("busy"), out("denied"), over(STORED))
    assert found.to_json()["busy"] == ["n0", "n1"]


def test_a_rank_without_steps_is_named_wherever_it_was_lost():
    asked = pb.Options(iterations=7, at_least_ns=1)
    steps = pb.RecordedSteps(count=7, step_ns=10)
    hosts = [over(STORED, FAILED), over(STORED, rank=2), out(), out(stand=Stand.LOST), out("not_found", Stand.NOTHING)]
    for host in hosts[:2]:
        host.capture.options.CopyFrom(asked)
        for target in host.capture.targets:
            target.end_ns = 100
            if target.state == STORED:
                target.trace = "t"
                target.steps.CopyFrom(steps)
    hosts[2].unable_ranks = [4]
    hosts[3].ranks, hosts[3].chosen = [5, 6], [6]
    found = outcome(*hosts)
    assert found.steps is not None
    assert (found.steps.unpaired, found.steps.missed) == (("rank 1", "rank 4", "rank 6"), True)


def test_what_is_missing_is_named():
    found = outcome(over(STORED), out(), out("not_found", Stand.NOTHING), ranks=(0, 3))
    assert (found.missing, found.missing_ranks) == ({"n1": "a reason"}, [3])
    told = found.to_json()
    assert [(host["host"], host["stand"], host["message"]) for host in told["hosts"]] == [
        ("n0", "over", None),
        ("n1", "out", "a reason"),
        ("n2", "nothing", "a reason"),
    ]
    assert told["missing_ranks"] == [3]
