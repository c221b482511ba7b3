"""When nothing is promised any more of what a program recorded without a daemon."""

from __future__ import annotations

import pytest
from profproto.v1 import capture_pb2 as pb

from soak.lanes.capturing import has_given_up
from soak.rig import Follow
from soak.truth import Promise


def follow(away_seconds: float) -> Follow:
    return Follow(Promise(311_940, 312_860), lambda: 0, away_seconds=away_seconds)


def failed(message: str = "profd was restarted during the capture") -> pb.TargetStatus:
    return pb.TargetStatus(state=pb.STATE_FAILED, reason=pb.REASON_DAEMON_RESTARTED, message=message)


@pytest.mark.parametrize("message", ["nothing had arrived", "its raw data is kept: `profctl retry`"])
def test_after_daemons_in_a_row_also_where_nothing_can_be_retried(message: str) -> None:
    assert has_given_up(failed(message), follow(11.0))
    assert not has_given_up(failed(message), follow(9.0))


def test_not_where_the_capture_says_how_much_is_lost() -> None:
    counted = failed()
    counted.lost.add(stage="ingest", reason="missing", count=920)
    assert not has_given_up(counted, follow(11.0))


def test_not_where_something_was_stored() -> None:
    stored = failed()
    stored.state = pb.STATE_PARTIAL
    assert not has_given_up(stored, follow(11.0))
