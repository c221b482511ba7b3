"""Credentials: one token serves many calls, and is renewed before it ends."""

import socket
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest
from profclient import connection, control
from profclient.errors import BusyError, DeniedError, UnreachableError


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("profclient.connection.time.monotonic", lambda: now[0])
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
        control.token(tmp_path / "control.sock")


@pytest.mark.parametrize(
    "said", [b"[1, 2]", b"7", b"null", b"[" * 30_000, b"\xff"], ids=["list", "number", "null", "deep", "no text"]
)
def test_what_is_no_answer_of_a_daemon_is_an_error_with_the_place(tmp_path, said):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as anybodys:
        anybodys.bind(str(tmp_path / "s"))
        anybodys.listen(1)

        def answer() -> None:
            with anybodys.accept()[0] as asking:
                asking.send(said)

        with ExitStack() as stack:
            answering = threading.Thread(target=answer)
            answering.start()
            stack.callback(answering.join)
            with pytest.raises(UnreachableError, match=str(tmp_path)):
                control.token(tmp_path / "s")


def test_a_refusal_is_told(monkeypatch, tmp_path):
    class Refusing:
        def __init__(self, *_): ...
        def close(self): ...
        def settimeout(self, _): ...
        def setsockopt(self, *_): ...
        def connect(self, _): ...
        def getpeername(self): ...
        def recv(self, _):
            return b'{"error": "too many connections; try again in a moment"}'

    monkeypatch.setattr("profclient.control.socket.socket", Refusing)
    with pytest.raises(DeniedError, match="try again"):
        control.token(tmp_path / "control.sock")


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


@pytest.fixture
def full_queue():
    """A control socket whose queue of connections is full."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name, ExitStack() as held:
        path = Path(name) / "control.sock"
        listener = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(str(path))
        listener.listen(1)
        with pytest.raises(BlockingIOError):  # noqa: PT012 - one of them is one too many
            while True:
                client = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                client.setblocking(False)
                client.connect(str(path))
        yield listener, path


def test_a_full_queue_is_waited_for(full_queue, monkeypatch):
    listener, path = full_queue
    tries = threading.Event()
    connect = control.connect

    def trying(*arguments):
        tries.set()
        connect(*arguments)

    monkeypatch.setattr(control, "connect", trying)

    def let_in():
        tries.wait()
        with suppress(OSError):  # at the end
            while True:
                accepted, _ = listener.accept()
                with accepted:
                    accepted.send(b'{"token": "t", "expires_s": 300}')

    thread = threading.Thread(target=let_in)
    thread.start()
    try:
        assert control.token(path) == ("t", 300.0)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_queue_that_stays_full_is_told_from_a_daemon_that_is_not_there(full_queue, monkeypatch):
    monkeypatch.setattr(control, "CONTROL_TIMEOUT_SECONDS", 0.05)
    with pytest.raises(BusyError, match="busy"):
        control.token(full_queue[1])


def test_a_daemon_that_says_nothing_is_told_from_one_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "CONTROL_TIMEOUT_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        with pytest.raises(UnreachableError, match="is there"):
            control.token(tmp_path / "control.sock")


@pytest.mark.parametrize(
    "said", ["[" * 5000, "[]", "7", '{"message"', "{}"], ids=("nested", "list", "7", "cut", "none")
)
def test_words_that_are_none_of_profds_are_left_out(said):
    """Of a daemon behind a relay, whose host may be anybody's."""
    assert connection._sentence(said, "otherwise") == "otherwise"
