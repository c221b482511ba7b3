"""The relay's side of the conversation: lines on two descriptors, and connections to the daemon.

Writes to the client block: one that does not read makes the daemon wait, and nothing is held here. What the client
sends is held up to a window for each connection. An alarm ends a relay that hears nothing for `SILENCE_SECONDS`.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` wraps what it has in an enum, `socket` too
import _socket as socket
import os
import select
import time

from profclient import address, control
from profclient.errors import ClientError
from profclient.relay.clock import clock
from profclient.relay.lines import STREAM_MAX, TO, VERSION, Garbled, Message, Reader, Sorter, Writer

WINDOW_BYTES = 256 * 1024  # on the way in one direction of one connection
STREAMS_MAX = 8
SILENCE_SECONDS = 90
READ_BYTES = 64 * 1024
_HELLO = b'{"version": %d}' % VERSION  # as this version's clients write it


class Connection:
    """One of the client's, to the daemon."""

    __slots__ = ("ending", "out", "sock", "stream", "unacked")

    def __init__(self, stream: int, sock: socket.socket) -> None:
        self.stream, self.sock = stream, sock
        self.out = bytearray()  # the client's, for the daemon
        self.unacked = 0  # bytes of the daemon's that the client has not acknowledged
        self.ending = False  # the client has closed it: when `out` is empty it is over


class Relay:
    """See the module. `serve` returns at the end of the conversation."""

    def __init__(self, incoming: int, outgoing: int, address: bytes = b"") -> None:
        """`address`: of this relay, where it shares the descriptors' other ends with relays of other hosts."""
        self._incoming, self._outgoing, self._address = incoming, outgoing, address
        self._reader, self._writer, self._sorter = Reader(), Writer(address), Sorter(TO)
        self._poll = select.poll()
        self._connections: dict[int, Connection] = {}
        self._watched: dict[int, Connection | None] = {}  # by descriptor; None: the client
        self._greeted = False
        self._over = False

    def serve(self) -> None:
        """Serve until the client goes or says `bye`. Raises Garbled after it has told the client."""
        self._watched[self._incoming] = None
        self._poll.register(self._incoming, select.POLLIN)
        try:
            while not self._over:
                # By connection: a descriptor may be another one's after what is heard first.
                for connection, events in [(self._watched[fd], events) for fd, events in self._poll.poll()]:
                    self._ready(connection, events)
        except Garbled as error:
            self._say("error", 0, self._words(error))
            raise
        finally:
            for connection in list(self._connections.values()):
                self._drop(connection)

    def _ready(self, connection: Connection | None, events: int) -> None:
        if connection is None:
            self._hear()
            return
        if self._connections.get(connection.stream) is not connection:
            return  # closed by what was heard a moment ago
        try:
            if events & ~select.POLLIN:  # an error is either's to find
                self._pass_on(connection)
            if events & ~select.POLLOUT and connection.stream in self._connections:
                self._bring(connection)
        except OSError as error:
            self._close(connection, error.strerror or str(error))

    def _hear(self) -> None:
        data = os.read(self._incoming, READ_BYTES)
        if not data:
            self._over = True
            return
        for line in self._reader.feed(self._own(data) if self._address else data):
            signal.alarm(SILENCE_SECONDS)
            if self._over:
                return
            self._obey(line)

    def _own(self, untrusted: bytes) -> bytes:
        """Of all relays' lines, this one's."""
        return b"".join(line + b"\n" for address, line in self._sorter.feed(untrusted) if address == self._address)

    def _words(self, why: object) -> bytes:
        return str(why).encode()[: self._writer.payload_bytes_max]

    def _obey(self, line: Message) -> None:
        if line.stream >= STREAM_MAX:
            raise Garbled(f"there is no stream {line.stream}")
        if not self._greeted and line.kind != "hello":
            raise Garbled(f"a conversation begins with hello, not with {line.kind}")
        match line.kind:
            case "hello":
                self._greet(line.payload)
            case "token":
                self._say("token", 0, _token(self._writer.payload_bytes_max))
            case "clock":
                self._say("clock", 0, clock())
            case "ping":
                self._say("pong", 0, line.payload)
            case "bye":
                self._over = True
            case "open":
                self._open(line.stream)
            case "data" | "ack" | "close":
                self._carry(line)
            case _:
                raise Garbled(f"{line.kind} is nothing that a client says")

    def _greet(self, untrusted: bytes) -> None:
        asked = _asked_version(untrusted)
        if asked != VERSION:
            raise Garbled(f"this relay speaks version {VERSION} of the protocol, and was asked for {asked!r}")
        self._greeted = True
        self._say("hello", 0, _greeting())

    def _open(self, stream: int) -> None:
        if stream in self._connections:
            raise Garbled(f"stream {stream} is open already")
        if len(self._connections) >= STREAMS_MAX:
            self._say("close", stream, f"a relay has at most {STREAMS_MAX} connections".encode())
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            control.connect(sock, address.found(), time.monotonic() + control.CONTROL_TIMEOUT_SECONDS)
        except (OSError, ClientError) as error:
            sock.close()
            self._say("close", stream, self._words(error))
            return
        sock.setblocking(False)
        connection = self._connections[stream] = Connection(stream, sock)
        self._watch(connection)

    def _carry(self, line: Message) -> None:
        connection = self._connections.get(line.stream)
        if connection is None:
            return  # closed here; the client may not have heard of it yet
        if line.kind == "data":
            if len(connection.out) + len(line.payload) > WINDOW_BYTES:
                raise Garbled(f"stream {line.stream} has more on the way than its window of {WINDOW_BYTES} bytes")
            connection.out += line.payload
        elif line.kind == "ack":
            connection.unacked -= acknowledged(line, connection.unacked)
        else:
            connection.ending = True
            if not connection.out:
                self._drop(connection)
                return
        self._watch(connection)

    def _pass_on(self, connection: Connection) -> None:
        """Send the client's bytes to the daemon. Raises OSError."""
        sent = connection.sock.send(connection.out)
        del connection.out[:sent]
        self._say("ack", connection.stream, b"%d" % sent)
        if connection.ending and not connection.out:
            self._drop(connection)
            return
        self._watch(connection)

    def _bring(self, connection: Connection) -> None:
        """Send the daemon's bytes to the client. Raises OSError."""
        data = connection.sock.recv(min(self._writer.payload_bytes_max, WINDOW_BYTES - connection.unacked))
        if not data:
            self._close(connection, "profd has closed it")
            return
        connection.unacked += len(data)
        self._say("data", connection.stream, data)
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        events = select.POLLOUT if connection.out else 0
        if connection.unacked < WINDOW_BYTES and not connection.ending:
            events |= select.POLLIN
        if events:
            self._watched[connection.sock.fileno()] = connection
            self._poll.register(connection.sock, events)
        else:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        if self._watched.pop(connection.sock.fileno(), None) is not None:
            self._poll.unregister(connection.sock)

    def _close(self, connection: Connection, why: str) -> None:
        self._drop(connection)
        self._say("close", connection.stream, self._words(why))

    def _drop(self, connection: Connection) -> None:
        del self._connections[connection.stream]
        self._forget(connection)
        connection.sock.close()

    def _say(self, kind: str, stream: int, payload: bytes) -> None:
        """BrokenPipeError where the client has gone."""
        left = memoryview(self._writer.line(kind, stream, payload))
        while left:
            left = left[os.write(self._outgoing, left) :]


def acknowledged(line: Message, most: int) -> int:
    """The bytes that an `ack` names. Garbled for more than were sent."""
    if not line.payload.isdigit() or len(line.payload) > 9 or int(line.payload) > most:
        raise Garbled(f"stream {line.stream} acknowledges what was not sent")
    return int(line.payload)


def _token(bytes_max: int) -> bytes:
    """The token of this process and the seconds that it lasts, or what stands in the way: JSON."""
    try:
        said = control.token_answer(os.path.join(os.path.dirname(address.found()), "control.sock"))
    except ClientError as error:
        return _refusal(str(error), error.kind, bytes_max)
    if len(said) <= bytes_max:
        return said
    import json

    answer = json.loads(said)  # its other members are not for the client
    return json.dumps({name: answer[name] for name in ("token", "expires_s") if name in answer}).encode()


def _refusal(words: str, kind: str, bytes_max: int) -> bytes:
    import json

    while len(told := json.dumps({"error": words, "kind": kind}).encode()) > bytes_max:
        words = words[: len(words) * 3 // 4]
    return told


def _greeting() -> bytes:
    """What this host says of itself, as JSON."""
    name = os.uname().nodename
    if name.isascii() and name.replace("-", "").replace(".", "").isalnum():
        quoted = f'"{name}"'
    else:
        import json

        quoted = json.dumps(name)
    return f'{{"version": {VERSION}, "host": {quoted}, "pid": {os.getpid()}, "uid": {os.getuid()}}}'.encode()


def _asked_version(untrusted: bytes) -> object:
    if untrusted == _HELLO:
        return VERSION
    import json

    try:
        return json.loads(untrusted)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
