"""The daemon's registry of agents behind a socket of its own, all of it real; and what agents say to it."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from profd.attached.agents.agent import Agent, ArmOrder
from profd.attached.agents.protocol import PacketKind
from profd.attached.agents.registry import ATTACHED, AgentRegistry
from profd.attached.agents.server import AgentServer
from profd.fairness.shares import Share
from profd.targets.process import ProcessId
from profd.targets.table import ProcessTable
from profd.trust.identify import start_ticks

from tests.support.descriptors import now_open, opened_since
from tests.support.fake_agent import SEALS, FakeAgent, MiB
from tests.support.waiting import eventually

ME = ProcessId(os.getpid(), start_ticks(os.getpid()))

ORDER = ArmOrder(epoch=7, arena_bytes=MiB, options=("ranges", "torch:auto"), window_ns=10, max_overhead=0.02)


class Served:
    """A registry behind a socket."""

    def __init__(
        self,
        path: Path,
        only_uid: int | None = None,
        share: Share = ATTACHED,
        change_identity: bool = False,
        listener: socket.socket | None = None,
    ) -> None:
        self.path = path
        self.registry = AgentRegistry(only_uid, share=share, change_identity=change_identity)
        if listener is None:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(str(path))
            listener.listen(128)
        self.server = AgentServer(listener, self.registry)
        self.server.open()

    async def attached(self, **changes: object) -> tuple[FakeAgent, Agent]:
        fake = FakeAgent(self.path)
        fake.hello(**changes)
        await fake.expect(PacketKind.WELCOME)
        agent = self.registry.get(ME)
        assert agent is not None
        return fake, agent


@asynccontextmanager
async def serving(only_uid: int | None = None, share: Share = ATTACHED) -> AsyncIterator[Served]:
    """One in a directory of its own. Behind the block it has closed every descriptor that it took."""
    ProcessTable().get(os.getpid())  # where torch is loaded, the first look starts the server of errands for good
    before = now_open()
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        found = Served(Path(name) / "agent.sock", only_uid, share)
        try:
            yield found
        finally:
            found.server.close()
    try:  # connections that are being identified close a little later
        await eventually(lambda: not opened_since(before))
    except TimeoutError:
        raise AssertionError(f"still open: {opened_since(before)}") from None


def tell(fake: FakeAgent, number: int, said: bytes, size: int = 0, seals: int = SEALS) -> None:
    """An answer as agents give it: `said`, in a file of at least `size` bytes."""
    fd = os.memfd_create("recall", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, max(size, len(said)))
    os.pwrite(fd, said, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    fake.send(PacketKind.RECALLED, number, fd)
    os.close(fd)
