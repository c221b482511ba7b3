"""Credentials: one token serves many calls, and is renewed before it ends."""

from pathlib import Path

import grpc
import pytest
from profclient import connection
from profclient.errors import DeniedError, UnreachableError


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(connection.time, "monotonic", lambda: now[0])
    return now


def test_a_token_is_renewed_in_good_time(monkeypatch, clock):
    asked: list[Path] = []

    def token(control: Path) -> tuple[str, float]:
        asked.append(control)
        return f"token{len(asked)}", 300.0

    monkeypatch.setattr(connection, "token", token)
    with connection.Daemon(Path("/nowhere/profd.sock")) as daemon:
        clock[0] += 149
        assert daemon._metadata() == [("profd-token", "token1")]
        clock[0] += 2
        assert daemon._metadata() == [("profd-token", "token2")]
    assert asked == [Path("/nowhere/control.sock")] * 2


def test_nobody_there(tmp_path):
    with pytest.raises(UnreachableError, match="profd --user"):
        connection.token(tmp_path / "control.sock")


def test_a_refusal_is_told(monkeypatch, tmp_path):
    class Refusing:
        def __init__(self, *_): ...
        def __enter__(self):
            return self

        def __exit__(self, *_): ...
        def settimeout(self, _): ...
        def connect(self, _): ...
        def recv(self, _):
            return b'{"error": "too many connections; try again in a moment"}'

    monkeypatch.setattr(connection.socket, "socket", Refusing)
    with pytest.raises(DeniedError, match="try again"):
        connection.token(tmp_path / "control.sock")


@pytest.mark.parametrize(
    ("code", "details"),
    [(grpc.StatusCode.UNKNOWN, "Stream removed (Socket closed)"), (grpc.StatusCode.UNAVAILABLE, "Connection refused")],
)
def test_a_daemon_that_dies_is_unreachable(code, details):
    class Died(grpc.RpcError):
        def code(self):
            return code

        def details(self):
            return details

        def trailing_metadata(self):
            return None

    error = connection.translated(Died())
    assert isinstance(error, UnreachableError)
    assert "profd went away" in str(error)
