"""Answers of hosts that need not be profd's: refused before they fill the memory of whoever asked."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.errors import ClientError
from profclient.fleet import messages
from profclient.fleet.host import Host
from profclient.fleet.messages import parsed
from profproto.v1 import capture_pb2 as pb

_TARGETS = pb.Capture.DESCRIPTOR.fields_by_name["targets"].number
MANY = 40_000
EMPTY_TARGET = bytes([_TARGETS << 3 | 2, 0])


def nested(count: int) -> bytes:
    """A capture of one process with so many losses that say nothing."""
    losses = bytes([*_tag(pb.TargetStatus.DESCRIPTOR.fields_by_name["lost"].number), 0]) * count
    return pb.Capture(id="c1").SerializeToString() + EMPTY_TARGET[:1] + _size(len(losses)) + losses


def _tag(number: int) -> bytes:
    return _size(number << 3 | 2)


def _size(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize(
    ("untrusted", "why"),
    [
        pytest.param(EMPTY_TARGET * (MANY + 1), "more than 40,000 parts", id="processes"),
        pytest.param(nested(MANY + 1), "more than 40,000 parts", id="losses"),
        pytest.param(EMPTY_TARGET * (messages.TARGETS_MAX + 1), "more than 4,096 processes", id="targets"),
        pytest.param(b"\xff" * (1 << 20), "parts", id="numbers without end"),
        pytest.param(EMPTY_TARGET[:1] + b"\x7f", "none of profd's", id="cut"),
    ],
)
def test_what_no_daemon_answers_is_refused(monkeypatch: pytest.MonkeyPatch, untrusted: bytes, why: str) -> None:
    monkeypatch.setattr(messages, "ELEMENTS_MAX", MANY)
    with pytest.raises(ClientError, match=why):
        parsed(untrusted, pb.Capture)


def test_a_large_answer_of_a_daemon_is_read() -> None:
    process = pb.ProcessStacks(threads=[pb.ThreadStack(name=f"t{number}") for number in range(20_000)])
    answer = pb.WhereResponse(processes=[process])
    assert len(answer.SerializeToString()) > messages.MEASURED_BYTES
    assert parsed(answer.SerializeToString(), pb.WhereResponse) == answer


@pytest.mark.parametrize(
    ("processes", "jobs", "why"),
    [
        pytest.param(messages.TARGETS_MAX + 1, [], "more than 4,096 processes", id="processes"),
        pytest.param(0, [pb.Collectives(pids=range(messages.TARGETS_MAX + 1))], "more than 4,096", id="asked"),
        pytest.param(
            2, [pb.Collectives(pids=[0, 1], sentences=["x" * 1000])], "says more of collectives", id="product"
        ),
    ],
)
def test_stacks_that_would_be_endless_as_json_are_refused(
    monkeypatch: pytest.MonkeyPatch, processes: int, jobs: list[pb.Collectives], why: str
) -> None:
    monkeypatch.setattr(messages, "COLLECTIVES_BYTES_MAX", 2000)
    stacks = [pb.ProcessStacks(pid=number) for number in range(processes)]
    answer = pb.WhereResponse(processes=stacks, collectives=jobs)
    with pytest.raises(ClientError, match=why):
        parsed(answer.SerializeToString(), pb.WhereResponse)
    few = pb.WhereResponse(processes=stacks[:1], collectives=[pb.Collectives(pids=[0, 1], sentences=["x" * 1000])])
    assert parsed(few.SerializeToString(), pb.WhereResponse) == few


class _Channel:
    """Answers each call with these bytes, as gRPC does for a caller who parses them."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def unary_unary(self, path: str, serialise: Any, parse: Any = None) -> Any:
        async def call(request: Any, **_: Any) -> Any:
            assert parse is None
            assert path == "/profd.v1.CaptureService/GetCapture"
            return self._answer

        return call


async def test_a_host_that_answers_so_is_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    async def no_carrier() -> Any:
        raise AssertionError("it is reached already")

    host = Host("n1", no_carrier, tmp_path / "s")

    async def metadata() -> list[tuple[str, str]]:
        return []

    monkeypatch.setattr(host, "_metadata", metadata)
    monkeypatch.setattr(host, "_channel", _Channel(EMPTY_TARGET * (messages.TARGETS_MAX + 1)))
    with pytest.raises(ClientError, match="more than 4,096 processes"):
        await host.call("GetCapture", pb.CaptureRef(id="f1"))
