"""Questions as the client sends them, to a server that answers with what it was asked."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent import futures
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from profclient import connection
from profclient.connection import Daemon
from profclient.errors import ClientError, DeniedError, UsageError
from profclient.traces import Answer, RemoteTraces, is_capture
from profproto.v1 import query_pb2 as pb
from profproto.v1 import query_pb2_grpc, trace_pb2_grpc


class Echo(query_pb2_grpc.QueryServiceServicer):
    """Tells what it was asked, in two pieces; knows one token."""

    known = "token2"
    after_header = False
    knows = 99  # of a capture's id: 0 is a daemon of before there were any
    calls = 0

    def Query(self, request: pb.QueryRequest, context: Any) -> Iterator[pb.QueryResponse]:  # noqa: N802
        self.calls += 1
        known = dict(context.invocation_metadata())["profd-token"] == self.known
        if not known and not self.after_header:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who is that?")
        yield pb.QueryResponse(header=pb.QueryHeader(name=request.name, capture=request.scope.capture[: self.knows]))
        if not known:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who was that?")
        said = json.dumps(
            [request.scope.trace or request.scope.capture, json_format.MessageToDict(request.arguments)]
        ).encode()
        yield pb.QueryResponse(data=said[:5])
        yield pb.QueryResponse(data=said[5:])


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter(("token1", "token2", "token3"))
    monkeypatch.setattr(connection, "token", lambda control: (next(given), 300.0))


@pytest.fixture
def served() -> Iterator[Any]:
    """A function that serves a servicer; its client."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as folder:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        daemons = []

        def serve(add: Any, servicer: Any) -> RemoteTraces:
            add(servicer, server)
            server.add_insecure_port(f"unix:{folder}/s")
            server.start()
            daemons.append(Daemon(Path(folder, "s")))
            return RemoteTraces(daemons[0])

        yield serve
        for daemon in daemons:
            daemon.__exit__()
        server.stop(None).wait()


@pytest.mark.usefixtures("tokens")
def test_arguments_go_as_query_takes_them(served: Any) -> None:
    """Integers as text, lists as lists, and what is None not at all; a token that nobody knows is renewed once."""
    echo = Echo()
    traces = served(query_pb2_grpc.add_QueryServiceServicer_to_server, echo)
    asked = traces.ask("top", "abc", limit=(1 << 63) - 1, raw=True, by="x", lines=("a", "b"), from_row=None)
    sent = {"limit": "9223372036854775807", "raw": True, "by": "x", "lines": ["a", "b"]}
    assert asked.value() == ["abc", sent]
    assert echo.calls == 2
    assert b"".join(traces.ask("top", "")) == b'["", {}]'


@pytest.mark.usefixtures("tokens")
def test_an_answer_that_has_begun_is_not_asked_for_again(served: Any) -> None:
    echo = Echo()
    echo.after_header = True
    asked = served(query_pb2_grpc.add_QueryServiceServicer_to_server, echo).ask("top", "")
    with pytest.raises(DeniedError, match="who was that"):
        asked.value()
    assert echo.calls == 1


@pytest.mark.usefixtures("tokens")
def test_a_daemon_that_does_not_know_query(served: Any) -> None:
    class Old(trace_pb2_grpc.TraceServiceServicer):
        """One of before."""

    traces = served(trace_pb2_grpc.add_TraceServiceServicer_to_server, Old())
    with pytest.raises(ClientError, match=r"older than this profctl .*restarted with this version.*--store DIR"):
        traces.ask("top", "").value()


@pytest.mark.parametrize("cuts", [(), (1,), (3, 4), (2, 3, 9)])
def test_lines_are_whole_wherever_they_were_cut(cuts: tuple[int, ...]) -> None:
    data, bounds = b"ab\ncd\n\nef", (0, *cuts, 9)
    pieces = [data[begin:end] for begin, end in pairwise(bounds)]
    assert list(Answer(iter(pieces)).lines()) == [b"ab", b"cd", b"", b"ef"]


@pytest.mark.usefixtures("tokens")
def test_a_capture_is_asked_as_one(served: Any) -> None:
    echo = Echo()
    traces = served(query_pb2_grpc.add_QueryServiceServicer_to_server, echo)
    assert traces.ask("top", "c0123").value() == ["c0123", {}]
    # AND a daemon that knows no captures does not answer about the latest trace in its place
    echo.knows = 0
    with pytest.raises(UsageError, match="about traces only"):
        traces.ask("top", "c0123").value()


@pytest.mark.usefixtures("tokens")
def test_a_capture_of_many_hosts_is_asked_where_it_was_collected(served: Any) -> None:
    echo = Echo()
    traces = served(query_pb2_grpc.add_QueryServiceServicer_to_server, echo)
    with pytest.raises(UsageError, match="profctl collect f0123456789ab --to DIR"):
        traces.ask("top", "f0123456789ab")
    assert echo.calls == 0


@pytest.mark.parametrize(
    ("name", "capture"),
    [("c0123456789ab", True), ("c", True), ("f0123456789ab", True), ("", False), ("1ngg8jm2p27wn", False)],
)
def test_ids_tell_what_they_are_of(name: str, capture: bool) -> None:
    assert is_capture(name) == capture
