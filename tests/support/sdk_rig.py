"""The source `sdk` over a real `agent.sock`, with an ingest and streamers that are the test's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profd.attached.agents.protocol import PacketKind
from profd.attached.agents.registry import AgentRegistry
from profd.attached.agents.server import AgentServer
from profd.attached.sdk.handover import SdkParts
from profd.attached.sdk.source import SdkSource
from profd.capture.death import DeathWatch
from profd.gpu.lease_keeper import LeaseKeeper
from profd.limits import MiB
from profd.model.capture import Loss, Options, RawFile, Recording, State
from profd.sources.base import Session
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable
from profd.trust.identify import start_ticks

from tests.support.fake_agent import FakeAgent, memfd
from tests.support.python_jobs import seen

SECOND = 1_000_000_000
ARM_SECONDS = 10.0  # that an ARM may take to come, once its recording is over
ME = ProcessId(os.getpid(), start_ticks(os.getpid()))


@dataclass
class StandInIntake:
    """As `profd.attached.ingest` describes it."""

    path: Path
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    losses: list[Loss] = field(default_factory=list)
    events: int = 1
    failure: str = ""
    closed: bool = False

    async def finish(self, told: Iterable[tuple[str, str, int]], recorded: int) -> None:
        self.losses += [Loss(*each) for each in (*told, ("ingest", "missing", recorded - self.events)) if each[2]]
        self.finished.set()

    def close(self) -> None:
        self.closed = True


@dataclass
class StandInDrain:
    """As `profd.attached.ingest` describes it; `finish` waits for the test where it is told to."""

    intake: StandInIntake
    size: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    restarts: int = 0
    may_be_written: bool = False
    target_died: bool | None = None
    stuck: bool = False
    closed: bool = False

    async def finish(self, *, target_died: bool) -> None:
        self.target_died = target_died
        if self.stuck:
            await asyncio.Event().wait()
        if not self.problem:
            self.intake.finished.set()
        self.ended.set()

    def close(self) -> None:
        self.closed = True


class Rig:
    """A source over a real `agent.sock`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "journal" / "c1" / f"{ME.pid}-{ME.start_ticks}"
        self.folder.mkdir(parents=True)
        self.intakes: list[StandInIntake] = []
        self.drains: list[StandInDrain] = []
        self.prepare: Callable[[StandInDrain], None] = lambda drain: None
        self.refuse: Exception | None = None
        self.unable = ""
        self.said: list[tuple[State, str]] = []
        self.kept: list[RawFile] = []
        self.returned: list[tuple[str, ProcessId]] = []
        self.recovered: list[tuple[str, ProcessId, list[Loss] | None]] = []
        self.stop = asyncio.Event()
        self._fakes: list[FakeAgent] = []
        self._recording: asyncio.Task[Recording] | None = None
        self.registry = AgentRegistry()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.path = folder / "agent.sock"
        listener.bind(str(self.path))
        listener.listen(16)
        self.server = AgentServer(listener, self.registry)
        self.server.open()
        self.leases = LeaseKeeper(DeathWatch(ProcessTable()))
        self.registry.on_disarmed, self.registry.on_greeted = self.leases.clear, self.leases.greeted
        self.source = SdkSource(self.registry, SdkParts(self, self, MiB), self.path, folder / "journal", self.leases)
        self.source.on_returned = lambda capture, process: self.returned.append((capture, process))
        self.source.on_recovered = lambda capture, process, losses: self.recovered.append((capture, process, losses))

    # `Ingest` and `Streamers`

    async def expect(self, incarnation: int, epoch: int, uid: int, directory: Path) -> StandInIntake:
        if self.refuse is not None:
            raise self.refuse
        assert (incarnation, uid) == (0xAA, os.getuid())
        self.intakes.append(StandInIntake(directory / "chunks.pfc"))
        return self.intakes[-1]

    def why_not(self) -> str:
        return self.unable

    def drain(self, uid: int, incarnation: int, epoch: int, fd: int) -> StandInDrain:
        self.drains.append(StandInDrain(self.intakes[-1], os.fstat(fd).st_size))
        self.prepare(self.drains[-1])
        return self.drains[-1]

    # the test's side

    @property
    def process(self) -> Process:
        return seen(ME.pid)

    async def attach(self, **changes: object) -> FakeAgent:
        fake = FakeAgent(self.path)
        self._fakes.append(fake)
        fake.hello(**changes)
        await fake.expect(PacketKind.WELCOME)
        return fake

    def record(
        self, made: asyncio.Future[None] | None = None, cuda: bool = False, together: int = 1, **options: Any
    ) -> asyncio.Task[Recording]:
        session = Session(
            "c1",
            self.folder,
            self.stop,
            lambda state, doing: self.said.append((state, doing)),
            keep=self.kept.extend,
            made=made,
            together=together,
        )
        asked = Options(**{"duration_ns": 600 * SECOND, **options})
        self._recording = asyncio.create_task(self.source.record(replace(self.process, cuda=cuda), asked, session))
        return self._recording

    async def close(self) -> None:
        """End all, whatever the test has left open: a later test would fail for it, at the next collection."""
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.wait({self._recording})
        await self.source.close()
        for fake in self._fakes:
            fake.close()
        self.server.close()

    async def armed(self, fake: FakeAgent, **fields: object) -> int:
        """Answer ARM; the epoch. An AssertionError that says how the recording ended, where it ends instead."""
        arm = asyncio.ensure_future(fake.expect(PacketKind.ARM))
        ends = {self._recording} if self._recording is not None else set()
        await asyncio.wait({arm, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if not arm.done():  # it may be on its way, though the recording is over
            await asyncio.wait({arm}, timeout=ARM_SECONDS)
        if not arm.done():
            arm.cancel()
            assert self._recording is not None
            raise AssertionError(f"not armed: {await self._recording}")
        epoch = arm.result().epoch
        fd = memfd()
        fake.send(PacketKind.ARMED, epoch, fd, **{"first": 1_000, **fields})
        os.close(fd)
        return epoch
