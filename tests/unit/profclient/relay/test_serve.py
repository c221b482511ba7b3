"""A relay as a process, between a client that says anything and a daemon of a page."""

import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from profclient.relay import serve as serving
from profclient.relay.__main__ import NICE
from profclient.relay.lines import DATA_BYTES_MAX, SHARED_LINE_BYTES_MAX, Message, Reader, Writer
from profclient.relay.serve import STREAMS_MAX, WINDOW_BYTES

from tests.support.waiting import PATIENCE_SECONDS

HELLO = json.dumps({"version": 1}).encode()
PSS_MAX_KB = 30_000


class EchoDaemon:
    """Sends back what it gets, and gives tokens."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "profd.sock"
        self._listeners = []
        for kind, name, serve in (
            (socket.SOCK_STREAM, "profd.sock", self._echo),
            (socket.SOCK_SEQPACKET, "control.sock", self._token),
        ):
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(str(folder / name))
            listener.listen(64)
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def close(self) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener, serve):
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def _echo(self, connection):
        with connection, suppress(OSError):
            while data := connection.recv(65536):
                connection.sendall(data)

    def _token(self, connection):
        with connection:
            connection.send(b'{"token": "t", "expires_s": 300}')


class Talk:
    """The client's side of a relay process."""

    def __init__(self, address: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "profclient.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PROFD_ADDRESS": f"unix:{address}"},
        )
        self._writer, self._lines = Writer(), queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)  # a client reads while it writes
        self._reader.start()

    def say(self, kind: str, stream: int = 0, payload: bytes = b"") -> None:
        self.raw(self._writer.line(kind, stream, payload))

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self) -> Message:
        line = self._lines.get(timeout=PATIENCE_SECONDS)
        assert line is not None, "the relay has ended"
        return line

    def _read(self) -> None:
        assert self.process.stdout is not None
        reader = Reader()
        while data := os.read(self.process.stdout.fileno(), 65536):
            for line in reader.feed(data):
                self._lines.put(line)
        self._lines.put(None)

    def greet(self) -> dict:
        self.say("hello", 0, HELLO)
        return json.loads(self.hear().payload)

    def refused(self) -> str:
        """The sentence with which it gave up."""
        line = self.hear()
        assert line.kind == "error"
        assert self.process.wait(PATIENCE_SECONDS) == 1
        return line.payload.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_SECONDS)  # at the end of what the relay has said
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


@pytest.fixture
def daemon() -> Iterator[EchoDaemon]:
    with tempfile.TemporaryDirectory(prefix="pr-", dir="/tmp") as name:
        daemon = EchoDaemon(Path(name))
        yield daemon
        daemon.close()


@pytest.fixture
def talk(daemon: EchoDaemon) -> Iterator[Talk]:
    talk = Talk(daemon.path)
    yield talk
    talk.close()


def test_it_says_who_it_is_gets_a_token_and_knows_the_time(talk):
    assert talk.greet() == {
        "version": 1,
        "host": os.uname().nodename,
        "pid": talk.process.pid,
        "uid": os.getuid(),
    }
    talk.say("token")
    assert json.loads(talk.hear().payload) == {"token": "t", "expires_s": 300.0}
    talk.say("clock")
    assert set(json.loads(talk.hear().payload)) == {"unix_ns", "error_ns", "synchronised"}
    talk.say("ping", 0, b"x")
    assert talk.hear().payload == b"x"
    talk.say("bye")
    assert talk.process.wait(PATIENCE_SECONDS) == 0


def test_of_an_answer_that_is_too_long_for_a_line_what_matters_is_told(monkeypatch):
    said = {"token": "t", "expires_s": 300.0, "grpc": "/" + "x" * 800, "version": "1"}
    monkeypatch.setattr("profclient.control.token_answer", lambda _: json.dumps(said).encode())
    monkeypatch.setenv("PROFD_ADDRESS", __file__)
    assert json.loads(serving._token(SHARED_LINE_BYTES_MAX)) == said
    assert json.loads(serving._token(SHARED_LINE_BYTES_MAX // 2)) == {"token": "t", "expires_s": 300.0}


def test_a_host_with_any_name_says_it(monkeypatch):
    for name in ("n1.example-2", 'n"1\\', "knoten-ä"):
        monkeypatch.setattr(os, "uname", lambda name=name: SimpleNamespace(nodename=name))
        assert json.loads(serving._greeting())["host"] == name


def test_it_gives_way_to_the_job_beside_it(talk):
    talk.greet()
    pid = talk.process.pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)


def test_bytes_go_both_ways_within_the_windows(talk):
    talk.greet()
    talk.say("open", 1)
    sent = os.urandom(5 * WINDOW_BYTES)
    left, credit, came = memoryview(sent), WINDOW_BYTES, bytearray()
    while len(came) < len(sent):
        while left and credit:
            piece = bytes(left[: min(credit, DATA_BYTES_MAX)])
            talk.say("data", 1, piece)
            left, credit = left[len(piece) :], credit - len(piece)
        line = talk.hear()
        if line.kind == "ack":
            credit += int(line.payload)
        else:
            assert line.kind == "data"
            came += line.payload
            talk.say("ack", 1, b"%d" % len(line.payload))
    assert bytes(came) == sent
    assert not talk.process.poll()


def test_what_is_not_acknowledged_waits_in_the_daemon(talk):
    talk.greet()
    talk.say("open", 1)
    came = acked = 0
    for round_bytes in (WINDOW_BYTES, 8192):  # the first is what may be on the way back, the second too much
        for _ in range(round_bytes // 8192):
            talk.say("data", 1, bytes(8192))
        while acked < round_bytes:
            line = talk.hear()
            acked += int(line.payload) if line.kind == "ack" else 0
            came += len(line.payload) if line.kind == "data" else 0
        acked = 0
    while came < WINDOW_BYTES:
        came += len(talk.hear().payload)
    talk.say("ping")  # answered after all that it would have brought
    assert (came, talk.hear().kind) == (WINDOW_BYTES, "pong")
    talk.say("ack", 1, b"%d" % WINDOW_BYTES)
    while came < WINDOW_BYTES + 8192:
        came += len(talk.hear().payload)


def test_a_daemon_that_is_not_there_is_told(tmp_path):
    talk = Talk(tmp_path / "profd.sock")
    try:
        talk.greet()
        talk.say("token")
        assert "no profd listens" in json.loads(talk.hear().payload)["error"]
        talk.say("open", 1)
        line = talk.hear()
        assert (line.kind, line.stream) == ("close", 1)
        assert b"no profd listens" in line.payload
    finally:
        talk.close()


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (lambda talk: talk.say("token"), "begins with hello"),
        (lambda talk: talk.say("hello", 0, b'{"version": 2}'), "version 1"),
        (lambda talk: talk.say("hello", 0, b"[]"), "version 1"),
        (lambda talk: (talk.say("hello", 0, HELLO), talk.hear(), talk.say("open", 1 << 31)), "no stream"),
        (lambda talk: (talk.say("hello", 0, HELLO), talk.hear(), talk.say("pong")), "nothing that a client says"),
        (lambda talk: (talk.greet(), talk.say("open", 1), talk.say("open", 1)), "open already"),
        (lambda talk: (talk.greet(), talk.say("open", 1), talk.say("ack", 1, b"5")), "not sent"),
        (lambda talk: talk.raw(b"@profd1 0 hello 0 - 00000000\n"), "cut"),
    ],
)
def test_a_client_that_breaks_the_rules_is_told_and_left(talk, hostile, why):
    hostile(talk)
    assert why in talk.refused()


def test_ten_megabytes_without_an_end_of_line(talk):
    talk.greet()
    with suppress(BrokenPipeError):
        talk.raw(b"x" * 10_000_000)
    assert "MiB" in talk.refused()


def test_more_than_a_window_is_refused(talk, daemon):
    """A daemon that reads nothing: what the client sends all the same would have to be held."""
    os.unlink(daemon.path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(daemon.path))
        silent.listen(1)
        talk.greet()
        talk.say("open", 1)
        with suppress(BrokenPipeError):
            for _ in range(20 * WINDOW_BYTES // 8192):
                talk.say("data", 1, bytes(8192))
        while (line := talk.hear()).kind == "ack":
            pass
    assert (line.kind, b"window" in line.payload) == ("error", True)


def test_connections_have_a_bound(talk):
    talk.greet()
    for stream in range(STREAMS_MAX + 1):
        talk.say("open", stream)
    line = talk.hear()
    assert (line.kind, line.stream) == ("close", STREAMS_MAX)


def test_it_ends_with_its_client(talk):
    talk.greet()
    talk.process.stdin.close()
    assert talk.process.wait(PATIENCE_SECONDS) == 0


def test_it_is_small(talk):
    talk.greet()
    talk.say("clock")
    talk.hear()
    rollup = Path(f"/proc/{talk.process.pid}/smaps_rollup").read_text()
    (pss,) = (int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    assert pss < PSS_MAX_KB


def test_one_of_many_on_a_carrier_answers_for_itself(tmp_path):
    """GIVEN an address WHEN lines for all come in THEN it takes its own, and its own lines are short and say whose."""
    hello = Writer().line("hello", 0, HELLO), Writer().line("hello", 0, b"{}")
    asked = Writer()
    asked.line("hello")
    far = tmp_path / ("x" * 200) / "profd.sock"  # a sentence that is longer than a line has room for
    done = subprocess.run(
        [sys.executable, "-P", "-m", "profclient.relay", "--shared", "NODE"],
        input=b"@profd-to n2 %s@profd-to n1 %s@profd-to n1 %s" % (hello[1], hello[0], asked.line("token")),
        capture_output=True,
        env={**os.environ, "PROFD_ADDRESS": f"unix:{far}", "NODE": "n1"},
    )
    first, *lines, last = done.stdout.splitlines()
    assert (done.returncode, first, last) == (0, b"@profd-of n1 here", b"@profd-of n1 gone")
    assert [line.split()[:4] for line in lines] == [
        [b"@profd-of", b"n1", b"@profd1", b"%d" % at] for at in range(len(lines))
    ]
    assert max(map(len, lines)) < SHARED_LINE_BYTES_MAX
    assert [line.split()[4] for line in lines] == [b"hello", b"token"]


def test_a_shared_carrier_without_an_address(tmp_path):
    command = [sys.executable, "-P", "-m", "profclient.relay", "--shared", "NO_SUCH_VARIABLE"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, "NO_SUCH_VARIABLE" in done.stderr) == (2, True)
