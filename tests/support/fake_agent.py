"""An agent that says whatever a test wants; the kernel still says who it is: this process."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
from pathlib import Path

from profd.attached.agents.agent import Agent, Arm, Armed, ArmOrder
from profd.attached.agents.protocol import Packet, PacketKind, encode, parse_untrusted_packet

LONG = 60.0
MiB = 1 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
HELLO = {"versions": "1-1", "incarnation": "00000000000000aa", "agent": "0.1.0", "python": "3.11.7", "can": "ranges"}


def memfd(size: int = MiB, seals: int = SEALS) -> int:
    """A descriptor like an arena's."""
    fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


async def arm_agent(agent: Agent, order: ArmOrder, seconds: float) -> tuple[Armed, Arm]:
    """Arm an agent and wait for its answer."""
    sent = agent.arm(order)
    return await agent.answer(sent, seconds), sent


class FakeAgent:
    """A connection to `agent.sock`."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(path))
        self.socket.setblocking(False)

    def send(self, kind: PacketKind, epoch: int = 0, *fds: int, **fields: object) -> None:
        self.send_raw(encode(kind, epoch, **fields), *fds)

    def send_raw(self, packet: bytes, *fds: int) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.socket.sendmsg([packet], ancillary)

    def hello(self, *fds: int, **changes: object) -> None:
        self.send(PacketKind.HELLO, 0, *fds, **{**HELLO, **changes})

    async def receive(self) -> Packet:
        """The next packet; ConnectionResetError at the end of the connection."""
        async with asyncio.timeout(LONG):
            raw = await asyncio.get_running_loop().sock_recv(self.socket, 65536)
        if not raw:
            raise ConnectionResetError
        return parse_untrusted_packet(raw)

    async def expect(self, kind: PacketKind) -> Packet:
        packet = await self.receive()
        assert packet.kind == kind, packet
        return packet

    async def cut_off(self) -> bool:
        """Whether the daemon closes the connection (whatever it says before)."""
        try:
            while True:
                await self.receive()
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()
