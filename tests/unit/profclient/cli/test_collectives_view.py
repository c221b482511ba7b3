"""What `profctl where` prints of collectives."""

from __future__ import annotations

import pytest
from profclient.cli.collectives_view import collectives_json, print_collectives
from profproto.v1 import capture_pb2 as pb

HANG = pb.Collectives(
    job="77",
    state="hang",
    sentences=["rank 2 did not call all_reduce 4.", "rank 2 is at load (train.py:12)\x1b[2J."],
    group="0",
    sequence=4,
    operation="all_reduce",
    missing=[pb.MissingRank(name="rank 2", last=0, at=pb.Frame(function="load", file="train.py", line=12))],
    waiting=["rank 0", "rank 1"],
    notes=["pid 9 is of an earlier build"],
)


def test_a_hang_has_a_title_and_what_was_not_asked_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_collectives(HANG, "node1")
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first == "HANG: node1 job 77: rank 2 did not call all_reduce 4."
    assert second.startswith("    rank 2 is at load (train.py:12)")
    assert "\x1b" not in out
    assert err == "not asked for its collectives: pid 9 is of an earlier build\n"


def test_a_job_without_trouble_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_collectives(pb.Collectives(state="healthy", sentences=["No rank waits.", "All are at step 3."]))
    assert capsys.readouterr().out == "Collectives: No rank waits. All are at step 3.\n"


def test_json_tells_zero_from_unknown() -> None:
    said = collectives_json(HANG)
    assert (said["job"], said["sequence"], said["waited_ns"], said["waits_at"]) == ("77", 4, None, None)
    assert said["missing"] == [
        {"name": "rank 2", "last": 0, "at": {"function": "load", "file": "train.py", "line": 12}, "what": None}
    ]
    assert collectives_json(pb.Collectives(state="unknown"))["group"] is None
