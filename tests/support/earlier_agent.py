"""An agent of an earlier build: it says what one said when it was recorded, by docs/agent-protocol.md alone.

It shares no code with profd: packets are packed here, and its arena is the memory of a real one
(tests/corpus/recorded). What it changes in them is what a process cannot choose: pid, start, epoch.
"""

from __future__ import annotations

import array
import fcntl
import json
import lzma
import os
import socket
import struct
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "corpus" / "recorded"
HEADER = struct.Struct("<IHHQ")
MAGIC = 0x31474150
HELLO, WELCOME, REFUSED, ARM, ARMED, STOP, STOPPED, RELEASE, STATUS = range(1, 10)
DISARMED = 13
EPOCH_OFFSET, RECORDING_OFFSET = 32, 144  # in the header of an arena: native/recorder/arena.h
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
SECONDS = 120.0


def recorded() -> dict[str, Any]:
    """What the agent said, by packet, and what its arena holds."""
    found: dict[str, Any] = json.loads((RECORDED / "agent.json").read_text())
    return found


def arena() -> bytes:
    """The memory of its arena, as it was when it had stopped."""
    return lzma.decompress((RECORDED / "arena.xz").read_bytes())


class EarlierAgent:
    """One connection to `agent.sock`. To the daemon it is this process."""

    def __init__(self, path: Path) -> None:
        self.said = recorded()
        self._image = arena()
        self._path = path
        self.socket = self._connected()
        self._fd = -1

    def _connected(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(SECONDS)
        sock.connect(str(self._path))
        return sock

    def close(self) -> None:
        self.socket.close()
        if self._fd >= 0:
            os.close(self._fd)

    def attach(self) -> dict[str, str]:
        """HELLO; what WELCOME says."""
        self.send(HELLO, 0, self._hello())
        return self.expect(WELCOME)[1]

    def connect_again(self, epoch: int) -> None:
        """To the daemon after the one that had armed it: it goes on recording, and brings its arena."""
        self.socket.close()
        self.socket = self._connected()
        self.send(HELLO, 0, {**self._hello(), "armed": f"{epoch:x}"}, self._fd)
        self.expect(WELCOME)

    def _hello(self) -> dict[str, Any]:
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return {**self.said["hello"], "pid": os.getpid(), "start": stat[19]}

    def arm(self) -> int:
        """Wait for ARM, and answer with the arena, in which somebody seems to record; the epoch."""
        epoch, asked = self.expect(ARM)
        assert int(asked["arena"]) == len(self._image), f"an arena of {asked['arena']} bytes is asked for"
        self._fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, len(self._image))
        for at in range(0, len(self._image), 4096):  # sparse, as a real one
            page = self._image[at : at + 4096]
            if page.strip(b"\0"):
                os.pwrite(self._fd, page, at)
        os.pwrite(self._fd, struct.pack("<Q", epoch), EPOCH_OFFSET)
        os.pwrite(self._fd, struct.pack("<I", 1), RECORDING_OFFSET)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, SEALS)
        self.send(ARMED, epoch, self.said["armed"], self._fd)
        for status in self.said["statuses"]:
            self.send(STATUS, epoch, status)
        return epoch

    def stop(self, epoch: int) -> None:
        """Wait for STOP, and record no more."""
        assert self.expect(STOP)[0] == epoch
        os.pwrite(self._fd, struct.pack("<I", 0), RECORDING_OFFSET)
        self.send(STOPPED, epoch, self.said["stopped"])

    def release(self, epoch: int) -> None:
        """Wait until the arena has been drained."""
        assert self.expect(RELEASE)[0] == epoch
        self.send(DISARMED, epoch, {})

    def send(self, kind: int, epoch: int, fields: dict[str, Any], *fds: int) -> None:
        body = "".join(f"{key}={value}\n" for key, value in fields.items()).encode()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([HEADER.pack(MAGIC, kind, 0, epoch) + body], ancillary)

    def expect(self, wanted: int) -> tuple[int, dict[str, str]]:
        """The next packet, which is of this kind: its epoch and its fields."""
        raw = self.socket.recv(65536)
        assert raw, "the daemon has closed the connection"
        magic, kind, _, epoch = HEADER.unpack_from(raw)
        fields = dict(line.split("=", 1) for line in raw[HEADER.size :].decode().splitlines())
        assert (magic, kind) == (MAGIC, wanted), f"packet {kind} where {wanted} is due: {fields}"
        return epoch, fields
