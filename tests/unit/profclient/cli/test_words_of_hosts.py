"""What a host says, in each field of its answers: nothing of it is an order to the terminal, or a line of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from profclient.cli.collectives_view import print_collectives
from profclient.cli.estimate_view import print_blocks
from profclient.cli.fleet_view import FleetProgress, print_outcome
from profclient.cli.stacks_view import print_stacks
from profclient.fleet.machine import Fleet, HostState, Stand
from profclient.fleet.outcome import Outcome
from profclient.fleet.steps import Meeting, StepProgress, meet
from profproto.v1 import capture_pb2 as pb

EVIL = "\x1b[31m\u202e\x9b2J\r\nprofctl: a line"
DEEP = 5


def filled(kind: Any, depth: int = 0) -> Any:
    """A message with this in each text, two of whatever may be several, and no state that profd has."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is not None:
            if depth == DEEP or field.message_type.GetOptions().map_entry:
                continue
            value = filled(field.message_type._concrete_class, depth + 1)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            value = EVIL.encode()
        else:
            value = EVIL if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else 99
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(value)
        else:
            setattr(message, field.name, value)
    return message


def stacks() -> None:
    answer = filled(pb.WhereResponse)
    print_stacks(answer.processes, ["n0"] * len(answer.processes))
    for job in answer.collectives:
        print_collectives(job, "n0")


def estimates() -> None:
    answer = filled(pb.EstimateCaptureResponse)
    answer.targets[1].source = ""  # it takes no part
    print_blocks(answer.targets)


def captured() -> None:
    capture = filled(pb.Capture)
    capture.options.ClearField("start_at_ns")
    for target in capture.targets:
        target.ClearField("rank")
        target.ClearField("steps")
        target.state = pb.STATE_STORED
    print_outcome(Outcome("f0123456789ab", {"n0": HostState(Stand.OVER, EVIL, capture=capture)}))
    for target in capture.targets:
        target.state = 99
    print_outcome(Outcome("f0123456789ab", {"n0": HostState(Stand.LOST, EVIL, capture=capture)}))


def prepared() -> None:
    fleet = Fleet(["n0", "n1"])
    fleet.hosts["n0"].stand, fleet.hosts["n0"].unable = Stand.BEGINNING, [EVIL]
    fleet.hosts["n1"].stand, fleet.hosts["n1"].why = Stand.OUT, EVIL
    FleetProgress("f0123456789ab", quiet=False).prepared(fleet, 1, meet([StepProgress(EVIL, 0)], 1))


@pytest.mark.parametrize("said", [stacks, estimates, captured, prepared], ids=lambda said: said.__name__)
def test_no_word_of_a_host_is_an_order(said: Callable[[], None], capsys: pytest.CaptureFixture[str]) -> None:
    said()
    out, err = capsys.readouterr()
    assert "profctl: a line" in out + err  # it was printed
    for line in (out + err).splitlines():
        assert not line.startswith("profctl: a line")
        assert all(char.isprintable() for char in line), line


def test_a_meeting_that_is_none_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet(["n0"])
    fleet.hosts["n0"].stand = Stand.BEGINNING
    FleetProgress("f0123456789ab", quiet=False).prepared(fleet, 1, Meeting(None, "x" * 1_000_000))
    assert len(capsys.readouterr().err) < 2000
