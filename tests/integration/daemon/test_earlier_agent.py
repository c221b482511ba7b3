"""Agents, streams and files of earlier builds: a daemon of now takes from them what they have, to the last event."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import ingest_pb2, ingest_pb2_grpc

from tests.support.attached import HOUR_NS, Captures, sources
from tests.support.daemon import RunningDaemon, running_daemon, start_daemon
from tests.support.earlier_agent import ARM, HELLO, RECORDED, WELCOME, EarlierAgent
from tests.support.earlier_state import QUESTIONS, profctl, rows, told
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ARENA = {"PROFD_SDK_ARENA_BYTES": "16MiB"}  # that of the recorded one
EVENTS = 4500


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon(environ=ARENA) as daemon:
        yield daemon


@pytest.fixture
def agent(daemon: RunningDaemon) -> Iterator[EarlierAgent]:
    """One that the daemon knows."""
    with contextlib.closing(EarlierAgent(daemon.directory / "agent.sock")) as agent:
        assert agent.attach()["version"] == "1"
        until(lambda: "sdk" in sources(daemon, os.getpid()), "it is known")
        yield agent


TIMES = ("start_ns", "end_ns", "self_ns", "duration_ns")


def assert_rows(daemon: RunningDaemon, trace: str, *, slack_ns: int = 0, read_now: bool = False) -> None:
    """The trace has what that build made of the same arena, in every column.

    `read_now`: in the chunk that was open the ticks are those of the CPU that reads them, whose rate may be another
    than where they were recorded; its times may be longer or shorter, all by one factor.
    """
    wanted = json.loads(lzma.decompress((RECORDED / "rows.json.xz").read_bytes()))
    assert set(wanted) == set(QUESTIONS)
    assert len(wanted["events"]) == EVENTS
    for table, expected in wanted.items():
        found: Any = rows(daemon, trace, table)
        columns = re.findall(r"\w+", QUESTIONS[table].partition(" from ")[0])[1:]
        assert len(found) == len(expected), table
        pairs = zip(expected, found, strict=True)
        differing = [(one, other) for one, other in pairs if not _like(one, other, columns, slack_ns)]
        if read_now and _by_one_factor(differing, columns, slack_ns):
            continue
        assert not differing, f"{table}: {len(differing)} rows, the first of them {differing[0]}"


def _like(one: list[Any], other: list[Any], columns: list[str], slack_ns: int) -> bool:
    return all(
        a == b or (column in TIMES and None not in (a, b) and abs(a - b) <= slack_ns)
        for a, b, column in zip(one, other, columns, strict=True)
    )


def _by_one_factor(differing: list[tuple[Any, Any]], columns: list[str], slack_ns: int) -> bool:
    at = columns.index("duration_ns") if "duration_ns" in columns else -1
    pairs = [(one[at], other[at]) for one, other in differing if at >= 0 and one[at]]
    if not pairs or not all(_like(one, other, columns, 1 << 62) for one, other in differing):
        return False
    rate = sum(now for _, now in pairs) / sum(then for then, _ in pairs)
    return all(abs(now - then * rate) <= slack_ns for then, now in pairs)


def test_it_is_armed_drained_and_stored(daemon: RunningDaemon, agent: EarlierAgent) -> None:
    captures = Captures(daemon)
    capture = captures.start(os.getpid(), source="sdk", duration_ns=200_000_000).id
    epoch = agent.arm()
    agent.stop(epoch)
    agent.release(epoch)
    [target] = captures.ended(capture).targets
    assert (target.state, target.events, list(target.lost)) == (pb.STATE_STORED, EVENTS, []), target.message
    assert_rows(daemon, target.trace, slack_ns=2, read_now=True)  # seen: 1 ns, in the chunk that was open


def test_it_is_asked_what_it_understands(daemon: RunningDaemon, agent: EarlierAgent) -> None:
    """Keys may be added to ARM: it ignores those. The ones that it reads are there, and say the same."""
    Captures(daemon).start(os.getpid(), source="sdk", duration_ns=HOUR_NS, stacks=True)
    _, asked = agent.expect(ARM)
    assert {"arena", "strings", "options", "window"} <= set(asked)
    assert (asked["arena"], asked["window"]) == (str(16 << 20), str(HOUR_NS))
    assert {"ranges", "stacks"} <= set(asked["options"].split(","))


def test_it_is_taken_over_by_the_daemon_of_now(daemon: RunningDaemon, agent: EarlierAgent) -> None:
    """As when a host's daemon is updated while a job is recorded."""
    capture = Captures(daemon).start(os.getpid(), source="sdk", duration_ns=HOUR_NS).id
    epoch = agent.arm()
    Captures(daemon).until(capture, lambda found: found.targets[0].state == pb.STATE_RECORDING)
    until(lambda: list(daemon.state_dir.glob("journal/*/*/.recording.json")), "it is noted on the disk")
    daemon.kill()
    daemon.process = start_daemon(daemon.directory, environ=ARENA).process
    agent.connect_again(epoch)
    agent.stop(epoch)
    agent.release(epoch)
    [target] = Captures(daemon).ended(capture).targets
    assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_DAEMON_RESTARTED), target.message
    assert (target.events, list(target.lost)) == (EVENTS, [])
    assert_rows(daemon, target.trace, slack_ns=2, read_now=True)


def test_its_chunks_are_imported(daemon: RunningDaemon) -> None:
    code, _, err = profctl(daemon, "import", str(RECORDED / "chunks.pfc"))
    assert code == 0, err
    [trace] = told(daemon, "list")
    assert (trace["events"], trace["lost"]) == (EVENTS, [])
    assert_rows(daemon, trace["id"])


def test_its_chunks_are_taken_from_a_stream(daemon: RunningDaemon) -> None:
    data = (RECORDED / "chunks.pfc").read_bytes()
    incarnation, epoch = (int.from_bytes(data[at : at + 8], "little") for at in (16, 88))  # docs/wire-format.md
    requests = [
        ingest_pb2.IngestRequest(
            open=ingest_pb2.IngestOpen(version_min=1, version_max=1, incarnation=incarnation, epoch=epoch, label="mine")
        ),
        ingest_pb2.IngestRequest(chunks=ingest_pb2.IngestChunks(message=1, data=data)),
        ingest_pb2.IngestRequest(finish=ingest_pb2.IngestFinish(recorded=EVENTS)),
    ]
    stub = daemon.stub(ingest_pb2_grpc.IngestServiceStub)
    *_, last = stub.Stream(iter(requests), metadata=daemon.metadata(), timeout=120)
    assert last.finished
    assert_rows(daemon, last.trace)


def test_the_recorded_one_says_hello_as_the_protocol_has_it(daemon: RunningDaemon) -> None:
    """The fixture is what it should be: version 1 and nothing newer."""
    with contextlib.closing(EarlierAgent(daemon.directory / "agent.sock")) as agent:
        assert agent.said["hello"]["versions"] == "1-1"
        agent.send(HELLO, 0, {**agent.said["hello"], "pid": 1, "start": 1, "key of another version": "ignored"})
        assert agent.expect(WELCOME)[1]["version"] == "1"
