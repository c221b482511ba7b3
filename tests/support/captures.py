"""A capture manager whose sources, store and clock a test holds in its hands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from profd.capture.estimate import Headroom, HostHeadroom
from profd.capture.machine import Graces
from profd.capture.manager import CaptureManager
from profd.capture.outcome import StoredTrace
from profd.capture.planner import ManagerSettings, Request
from profd.capture.records import CaptureRecord, TargetRecord
from profd.capture.switch import Switch
from profd.gpu.sidecar import BeginSidecar
from profd.journal.journal import Journal
from profd.model.capture import Options, RawFile, Recording, State
from profd.model.traits import of_older
from profd.sources.base import Offer, Plan, Session, Source
from profd.sources.declaration import (
    BY_PROCESS,
    SERVED,
    CommonAnswers,
    Declaration,
    cannot_guard,
    without_server,
)
from profd.targets.process import Process, ProcessId
from profd.targets.selector import Selector
from profd.trust.caller import Caller

SECOND_NS = 1_000_000_000
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
needs_ptrace = pytest.mark.skipif(
    os.geteuid() != 0 and _SCOPE.exists() and _SCOPE.read_text().strip() != "0",
    reason="kernel.yama.ptrace_scope lets only root look into other processes",
)
LONG = 60.0  # seconds until a test gives up waiting


def process(pid: int = 100, **changes: Any) -> Process:
    """A plain Python process of uid 51000."""
    base = Process(
        id=ProcessId(pid, pid * 7),
        ppid=1,
        uid=51000,
        gid=51000,
        user="alice",
        command="python train.py",
        python=True,
        framework="python",
    )
    return replace(base, **changes)


def person(uid: int = 51000, user: str = "alice", *, admin: bool = False) -> Caller:
    """A caller."""
    return Caller(uid=uid, gid=uid, user=user, admin=admin, pid=1)


ALICE = person()
BOB = person(51001, "bob")
ROOT = person(0, "root", admin=True)


class FakeTable:
    """Processes that a test adds and ends."""

    def __init__(self, processes: Sequence[Process] = ()) -> None:
        self.processes = {p.id.pid: p for p in processes}
        self._ends: dict[ProcessId, asyncio.Event] = {}

    def snapshot(self) -> list[Process]:
        return [self.processes[pid] for pid in sorted(self.processes)]

    def owned(self, uid: int, pids: Collection[int] = ()) -> list[Process]:
        return [process for process in self.snapshot() if process.uid == uid or process.id.pid in pids]

    def get(self, pid: int) -> Process | None:
        return self.processes.get(pid)

    def recall(self, pid: int) -> Process | None:
        return self.processes.get(pid)

    def as_its_user_sees(self, process: Process) -> Process:
        return replace(process, command="[name alone]", job="") if process.private else process

    def alive(self, process: ProcessId) -> bool:
        found = self.processes.get(process.pid)
        return found is not None and found.id == process

    def end(self, pid: int) -> None:
        ended = self.processes.pop(pid)
        self._ends.setdefault(ended.id, asyncio.Event()).set()

    async def ended(self, process: ProcessId) -> None:
        await self._ends.setdefault(process, asyncio.Event()).wait()


_RANKS = {"sdk": 10, "kineto": 20, "jax": 30, "cuda": 40, "pyspy": 50}  # as the real ones declare


def declare(name: str, **changes: Any) -> Declaration:
    """What a fake source declares: rank and traits of the real one, and that its plan decides of most options."""
    plain = Declaration(
        name=name,
        rank=_RANKS.get(name, 60),
        common=CommonAnswers(
            duration_ns=SERVED,
            iterations=BY_PROCESS,
            start_at_ns=BY_PROCESS,
            begin_step=BY_PROCESS,
            at_least_ns=BY_PROCESS,
            stacks=BY_PROCESS,
            c_calls=BY_PROCESS,
            max_overhead=cannot_guard(name),
        ),
        torch=BY_PROCESS,
        sampling=BY_PROCESS,
        server=without_server(name),
        traits=of_older(name),
    )
    return replace(plain, **changes)


class FakeSource(Source):
    """A source whose recordings end when the test says so (`finish`), or when it is stopped."""

    def __init__(self, name: str = "kineto", **declared: Any) -> None:
        self.declaration = declare(name, **declared)
        self.offers: dict[int, Offer] = {}
        self.offered = Offer(True)
        self.planned = Plan(True, deadline_ns=600 * SECOND_NS)
        self.sessions: dict[int, Session] = {}
        self.recorded: list[tuple[int, Options]] = []
        self.stubborn = False  # does not react to a stop
        self._started = asyncio.Condition()
        self._results: dict[int, asyncio.Future[Recording]] = {}

    def offer(self, process: Process) -> Offer:
        return self.offers.get(process.id.pid, self.offered)

    def plan(self, process: Process, options: Options) -> Plan:
        return self.planned

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        pid = process.id.pid
        result: asyncio.Future[Recording] = asyncio.get_running_loop().create_future()
        self._results[pid] = result
        self.sessions[pid] = session
        self.recorded.append((pid, options))
        session.report(State.ARMED, "waiting for poll")
        session.report(State.RECORDING, "the window is open")
        async with self._started:
            self._started.notify_all()
        stopped = asyncio.create_task(session.stop.wait())
        waiting: set[asyncio.Future[Any]] = {result} if self.stubborn else {result, stopped}
        try:
            if session.made is not None:
                await session.made
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return result.result() if result.done() else self.with_file(pid)
        finally:
            stopped.cancel()
            self.sessions.pop(pid)

    def with_file(self, pid: int, **changes: Any) -> Recording:
        """A recording with one file in the journal."""
        path = self.sessions[pid].directory / "trace.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        return Recording(files=[RawFile(str(path), "chrome")], start_ns=1, end_ns=2, **changes)

    async def started(self, pid: int) -> Session:
        """Wait until this process is recorded."""
        async with asyncio.timeout(LONG), self._started:
            await self._started.wait_for(lambda: pid in self.sessions)
        return self.sessions[pid]

    def finish(self, pid: int, recording: Recording | BaseException | None = None) -> None:
        """Let `record` return (or raise)."""
        result = self._results[pid]
        if isinstance(recording, BaseException):
            result.set_exception(recording)
        else:
            result.set_result(recording or self.with_file(pid))


class MemoryRecords:
    """Records that survive a manager but not the test."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.fail: BaseException | None = None
        self.gate: threading.Event | None = None

    def put(self, capture: str, record: dict[str, Any]) -> None:
        if self.gate is not None:
            self.gate.wait(LONG)
        if self.fail is not None:
            raise self.fail
        self.kept[capture] = record

    def all(self) -> list[dict[str, Any]]:
        return list(self.kept.values())

    def names(self) -> list[str]:
        return list(self.kept)

    def size(self, capture: str) -> int:
        return len(json.dumps(self.kept.get(capture, "")))

    def remove(self, capture: str) -> None:
        self.kept.pop(capture, None)


class FakeStoring:
    """Stores at once, unless told to wait (`gate`) or to fail."""

    def __init__(self) -> None:
        self.gate: asyncio.Event | None = None
        self.fail: BaseException | None = None
        self.result = StoredTrace("t0", events=10, gpu_events=None)
        self.stored: dict[tuple[str, ProcessId], StoredTrace] = {}
        self.begun = asyncio.Event()

    async def store(self, capture: CaptureRecord, target: TargetRecord, files: list[RawFile]) -> StoredTrace:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fail is not None:
            raise self.fail
        trace = replace(self.result, trace=f"t{len(self.stored) + 1}")
        self.stored[capture.id, target.process] = trace
        return trace

    def find(self, capture: str, process: ProcessId) -> StoredTrace | None:
        return self.stored.get((capture, process))


class AuditList:
    """Audit lines in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, int, dict[str, object]]] = []

    def write(self, action: str, uid: int, **details: object) -> None:
        self.lines.append((action, uid, details))


class FixedHeadroom(HostHeadroom):
    """Headroom a test names."""

    def __init__(self) -> None:
        super().__init__(Path("/"))
        self.memory_bytes: int | None = None
        self.disk_bytes: int | None = None

    def of(self, process: ProcessId) -> Headroom:
        return Headroom(self.memory_bytes, self.disk_bytes)

    def disk(self) -> int | None:
        return self.disk_bytes


@dataclass
class Rig:
    """A manager and everything it was built of."""

    directory: Path
    table: FakeTable = field(default_factory=FakeTable)
    sources: list[FakeSource] = field(default_factory=lambda: [FakeSource()])
    records: MemoryRecords = field(default_factory=MemoryRecords)
    storing: FakeStoring = field(default_factory=FakeStoring)
    audit: AuditList = field(default_factory=AuditList)
    headroom: FixedHeadroom = field(default_factory=FixedHeadroom)
    graces: Graces = field(default_factory=lambda: Graces(hearing_ns=0, overrun_ns=0))
    lease_grace: float = LONG
    own_pids: tuple[int, ...] = ()
    begin_sidecar: BeginSidecar = lambda process, options: None

    def __post_init__(self) -> None:
        self.journal = Journal(self.directory / "journal")
        self.switch = Switch(self.directory / "disabled")

    @property
    def source(self) -> FakeSource:
        return self.sources[0]

    def manager(self) -> CaptureManager:
        """A new daemon over the same disk."""
        return CaptureManager(
            sources=self.sources,
            records=self.records,
            table=self.table,
            storing=self.storing,
            journal=self.journal,
            audit=self.audit,
            switch=self.switch,
            headroom=self.headroom,
            ended=self.table.ended,
            settings=ManagerSettings(
                "host", graces=self.graces, lease_grace=self.lease_grace, own_pids=lambda: self.own_pids
            ),
            begin_sidecar=self.begin_sidecar,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[CaptureManager]:
        """A manager that is opened and closed."""
        manager = self.manager()
        await manager.open()
        manager.go_on()
        try:
            yield manager
        finally:
            await manager.close(0.0)


def request(*pids: int, seconds: float = 1.0, request_id: str = "", **options: Any) -> Request:
    """A bounded capture of these pids."""
    asked = Options(duration_ns=int(seconds * SECOND_NS), **options)
    return Request(Selector(pids=pids), asked, request_id)


def open_ended(*pids: int) -> Request:
    """One that ends when it is stopped."""
    return Request(Selector(pids=pids), Options(), open_ended=True)


async def until(manager: CaptureManager, capture: str, reached: Callable[[CaptureRecord], bool]) -> CaptureRecord:
    """Watch as root until the capture is as wanted; fails after LONG seconds."""
    async with asyncio.timeout(LONG), contextlib.aclosing(manager.watch(ROOT, capture)) as states:
        async for record in states:
            if reached(record):
                return record
    raise AssertionError(f"the capture ended otherwise: {record}")


async def ended(manager: CaptureManager, capture: str) -> CaptureRecord:
    """Watch until it is terminal."""
    return await until(manager, capture, lambda record: record.terminal)
