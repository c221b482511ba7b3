"""A daemon's side of docs/agent-protocol.md in a page: strict with what it receives, obedient to the test.

with AgentDaemon(folder) as daemon:
    agent = daemon.accept()          # HELLO has come, WELCOME has been sent
    armed = agent.arm("ranges")      # ARMED, with the arena's descriptor
    stopped = agent.stop()
    agent.release()
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

HEADER = struct.Struct("<IHHQ")
MAGIC = 0x31474150
HELLO, WELCOME, REFUSED, ARM, ARMED, STOP, STOPPED, RELEASE, STATUS, FAILED, CHANGED, LIMIT, DISARMED = range(1, 14)
RECALL, RECALLED, STEPS, REQUEST = 14, 15, 16, 17
FROM_AGENTS = (HELLO, ARMED, STOPPED, STATUS, FAILED, CHANGED, DISARMED, RECALLED, STEPS, REQUEST)
PACKET_BYTES_MAX = 16 * 1024
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
TIMEOUT_SECONDS = 60.0
MiB = 1 << 20


class Broken(AssertionError):
    """The agent broke the protocol."""


class Ended(Exception):
    """The agent closed its connection."""


@dataclass
class Packet:
    kind: int
    epoch: int
    fields: dict[str, str]
    fd: int = -1  # the test's to close
    at: float = field(default_factory=time.monotonic)


def packet_bytes(kind: int, epoch: int = 0, **fields: object) -> bytes:
    body = "".join(f"{key}={value}\n" for key, value in fields.items())
    return HEADER.pack(MAGIC, kind, 0, epoch) + body.encode()


def parse(raw: bytes) -> Packet:
    """Everything the protocol says about a packet of an agent's; Broken otherwise."""
    if not HEADER.size <= len(raw) <= PACKET_BYTES_MAX:
        raise Broken(f"a packet of {len(raw)} bytes")
    magic, kind, reserved, epoch = HEADER.unpack_from(raw)
    if magic != MAGIC or reserved or kind not in FROM_AGENTS:
        raise Broken(f"header {magic:x} {kind} {reserved}")
    lines = raw[HEADER.size :].decode().split("\n")
    if lines.pop() != "":
        raise Broken("the last line has no end")
    fields: dict[str, str] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or not key or key in fields or not line.isprintable():
            raise Broken(f"line {line!r}")
        fields[key] = value
    return Packet(kind, epoch, fields)


class AgentLink:
    """One connected agent."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.statuses: list[Packet] = []
        self.changes: list[Packet] = []
        self.disarmed: list[int] = []  # epochs
        self.pid, self.uid, self.gid = struct.unpack(
            "iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )
        self.hello = Packet(0, 0, {})

    def close(self) -> None:
        self.socket.close()

    def send(self, raw: bytes) -> None:
        self.socket.sendall(raw)

    def greet(self, **welcome: object) -> None:
        """HELLO in, WELCOME out, with these fields beside those of the first build."""
        self.hello = self.next(HELLO)
        fields = self.hello.fields
        if int(fields["pid"]) != self.pid or len(fields["incarnation"]) != 16 or fields["versions"] != "1-1":
            raise Broken(str(fields))
        if ("armed" in fields) != (self.hello.fd >= 0):
            raise Broken("the descriptor comes with armed=, and only then")
        self.send(packet_bytes(WELCOME, 0, version=1, **welcome))

    def receive(self, timeout: float = TIMEOUT_SECONDS) -> Packet:
        """The next packet, whatever it is. Raises Ended, TimeoutError."""
        ready, _, _ = select.select([self.socket], [], [], timeout)
        if not ready:
            raise TimeoutError("the agent said nothing")
        try:
            raw, control, flags, _ = self.socket.recvmsg(
                PACKET_BYTES_MAX + 1, socket.CMSG_LEN(4 * 8), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            raise Ended from None
        if not raw and not control:
            raise Ended
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Broken("too long, or too many descriptors")
        descriptors = array.array("i")
        for _, _, data in control:
            descriptors.frombytes(data)
        packet = parse(raw)
        if len(descriptors) > 1 or (descriptors and packet.kind not in (ARMED, HELLO, RECALLED)):
            raise Broken("descriptors where none belong")
        packet.fd = descriptors[0] if descriptors else -1
        return packet

    def next(self, *kinds: int, timeout: float = TIMEOUT_SECONDS) -> Packet:
        """The next packet of these kinds; STATUS, CHANGED and DISARMED between are kept, anything else is Broken."""
        until = time.monotonic() + timeout
        while True:
            packet = self.receive(max(until - time.monotonic(), 0))
            if packet.kind in kinds:
                return packet
            if packet.kind == STATUS:
                self.statuses.append(packet)
            elif packet.kind == CHANGED:
                self.changes.append(packet)
            elif packet.kind == DISARMED:
                self.disarmed.append(packet.epoch)
            else:
                raise Broken(f"kind {packet.kind} where {kinds} was expected: {packet.fields}")

    def arm(
        self,
        options: str = "ranges",
        *,
        epoch: int = 1,
        arena: int = 4 * MiB,
        strings: int = MiB // 2,
        window: int = 0,
        **more: object,
    ) -> Packet:
        """ARM, and its ARMED (with a descriptor that is an arena) or FAILED."""
        self.send(packet_bytes(ARM, epoch, arena=arena, strings=strings, options=options, window=window, **more))
        answer = self.next(ARMED, FAILED)
        if answer.epoch != epoch:
            raise Broken(f"epoch {answer.epoch} where {epoch} was armed")
        if answer.kind == ARMED:
            check_arena(answer.fd, arena)
        return answer

    def stop(self, epoch: int = 1) -> Packet:
        self.send(packet_bytes(STOP, epoch))
        stopped = self.next(STOPPED)
        if stopped.epoch != epoch or stopped.fd >= 0:
            raise Broken(str(stopped))
        return stopped

    def release(self, epoch: int = 1) -> None:
        self.send(packet_bytes(RELEASE, epoch))


def check_arena(fd: int, size: int) -> None:
    if fd < 0 or fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS != SEALS or os.fstat(fd).st_size != size:
        raise Broken("no sealed memfd of the size that was asked for")


class AgentDaemon:
    """Listens at `folder`/agent.sock. `address` is what attach() and PROFD_ADDRESS want."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "agent.sock"
        self.address = f"unix:{folder / 'profd.sock'}"
        self._listener: socket.socket | None = None
        self._links: list[AgentLink] = []
        self.listen()

    def listen(self) -> None:
        """As a daemon that starts: a socket of an earlier one is replaced."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(str(self.path))
        listener.listen(128)
        self._listener = listener

    def die(self) -> None:
        """As by SIGKILL: every descriptor is closed, the file of the socket stays."""
        for link in self._links:
            link.close()
        self._links.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def accept(self, *, greet: bool = True, timeout: float = TIMEOUT_SECONDS) -> AgentLink:
        """The next agent that connects."""
        assert self._listener is not None
        self._listener.settimeout(timeout)
        connection, _ = self._listener.accept()
        connection.setblocking(True)
        link = AgentLink(connection)
        self._links.append(link)
        if greet:
            link.greet()
        return link

    def waiting(self) -> bool:
        """Somebody has connected and was not accepted."""
        return bool(self._listener and select.select([self._listener], [], [], 0)[0])

    def __enter__(self) -> AgentDaemon:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.die()
