"""A daemon that is stopped, and whose queue of calls others keep full: who calls waits, and is told apart."""

import signal
import socket
import threading
from pathlib import Path

import pytest
from profclient import connection, control
from profclient.errors import BusyError, UnreachableError
from profproto.v1 import host_pb2, query_pb2, trace_pb2

from tests.support.daemon import ONE_WORKER, running_daemon


def fill(path: Path) -> None:
    """The queue of a socket that listens: who has gone stays in it until it is accepted."""
    with pytest.raises(BlockingIOError):  # noqa: PT012 - one of them is one too many
        while True:
            with socket.socket(socket.AF_UNIX) as client:
                client.setblocking(False)
                client.connect(str(path))


@pytest.fixture
def stopped_daemon():
    """A client with a token, of a daemon that accepts nobody meanwhile, and whose queue of calls is full."""
    with running_daemon(environ=ONE_WORKER) as daemon, connection.Daemon(daemon.socket) as client:
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            fill(daemon.socket)
            yield daemon, client
        finally:
            daemon.process.send_signal(signal.SIGCONT)


def call(client):
    return client.call(client.host.GetHostStatus, host_pb2.GetHostStatusRequest()).version


def stream(client):
    asked = query_pb2.QueryRequest(name="watch_host", scope=query_pb2.Scope(host=True))
    return next(client.stream(client.questions.Query, asked)).WhichOneof("part")


@pytest.mark.slow
@pytest.mark.parametrize("ask", [call, stream])
def test_a_full_queue_of_calls_is_waited_for(stopped_daemon, monkeypatch, ask):
    daemon, client = stopped_daemon

    def waiting(*arguments):
        daemon.process.send_signal(signal.SIGCONT)
        control.connect(*arguments)

    monkeypatch.setattr(connection, "connect", waiting)
    assert ask(client)


@pytest.mark.slow
def test_what_can_be_sent_once_waits_for_a_full_queue_beforehand(stopped_daemon, monkeypatch):
    daemon, client = stopped_daemon
    ready = client._await_connection

    def waiting(seconds):
        daemon.process.send_signal(signal.SIGCONT)
        return ready(seconds)

    monkeypatch.setattr(client, "_await_connection", waiting)
    whole = b'{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
    pieces = (trace_pb2.ImportChunk(filename="t.json", data=piece) for piece in (whole[:40], whole[40:]))
    others = {*threading.enumerate()}
    assert client.call(client.traces.Import, pieces).trace.events == 1
    left = [thread.name for thread in {*threading.enumerate()} - others if thread.name.endswith("(_run)")]
    assert left == []  # of gRPC: it would end with a traceback when the command does


@pytest.mark.slow
def test_a_queue_of_calls_that_stays_full_is_told_from_a_daemon_that_went_away(stopped_daemon, monkeypatch):
    daemon, client = stopped_daemon
    monkeypatch.setattr(connection, "CONTROL_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(BusyError, match=f"busy: too many wait to connect to {daemon.socket}"):
        client.call(client.traces.ListTraces, trace_pb2.ListTracesRequest())
    daemon.kill()
    with pytest.raises(UnreachableError, match="went away"):
        client.call(client.traces.ListTraces, trace_pb2.ListTracesRequest())
