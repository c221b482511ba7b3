"""The source `kineto`: what the daemon sees of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from profd.disk.space import Claim, alone
from profd.errors import Unavailable
from profd.gpu.holders import Holder, HolderKind
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import Held, Lease, Stage
from profd.journal.journal import Key
from profd.kernel import passed
from profd.model.capture import Options, Reason, Recording, State
from profd.model.newest import Newest
from profd.sources.base import Offer, Plan, Session, Source
from profd.sources.declaration import Declaration
from profd.sources.kineto import failures, offering, planning
from profd.sources.kineto.config_text import can_name
from profd.sources.kineto.endpoints import AbstractEndpoint, DirectoryEndpoint, Endpoint, ModeOff
from profd.sources.kineto.leftovers import Leftovers
from profd.sources.kineto.lifetime import Lifetime, groups
from profd.sources.kineto.recording import KinetoRecorder
from profd.sources.kineto.registry import DEFAULT_PERIOD_NS, Registered
from profd.sources.kineto.salvage import Salvage
from profd.sources.kineto.senders import Senders
from profd.sources.kineto.socket_thread import SocketThread
from profd.sources.kineto.wire import DAEMON_NAME
from profd.targets.errands.directory import Directory, SilentDirectory
from profd.targets.identity import Accepted
from profd.targets.pickup import NotTaken
from profd.targets.process import Process, ProcessId

log = logging.getLogger(__name__)

TRACE_DIRECTORY: Final = "KINETO_ONDEMAND_TRACE_DIR"
_HOUSEKEEPING_SECONDS: Final = 30.0
_REACH_SECONDS: Final = 2.0
_SPACE_BYTES: Final = 64 << 20
_SPACE_BYTES_PER_SECOND: Final = 16 << 20
_HISTORY: Final = 1024
_EXPECTED_SECONDS: Final = 20.0  # torch's import, and the first poll 5 s later; measured: up to 14 s
_REGISTER_SECONDS: Final = DEFAULT_PERIOD_NS / planning.SECOND + 5
_LOOK_SECONDS: Final = 0.1


class KinetoSource(Source):
    """libkineto's daemon mode.

    `socket_dir` is where clients with `KINETO_IPC_SOCKET_DIR` look (None: off),
    spelled as they spell it; `abstract` is libkineto's default address;
    `state_dir` exists and is private to the daemon. A mode whose address is
    held by another daemon is off and `status` names the holder; that is no
    reason not to start. `every_user`: it serves the processes of other users, too.
    """

    declaration: ClassVar[Declaration] = planning.DECLARATION

    def __init__(
        self,
        socket_dir: Path | None,
        abstract: bool,
        state_dir: Path,
        leases: LeaseKeeper,
        clock: Callable[[], int] = time.monotonic_ns,
        every_user: bool = True,
        senders: Senders | None = None,
        claim: Callable[[int], Claim] = lambda uid: alone(),
        kept: socket.socket | None = None,
        keep: Callable[[socket.socket], None] = lambda sock: None,
    ) -> None:
        """`senders`: the kernel's filter, if it was loaded.

        `claim`: of room in the journal for what a user's process wrote before the daemon began.
        `kept`: the abstract socket of an earlier daemon, still bound. `keep`: is handed one that was bound here.
        """
        self._kept = kept
        self._keep = keep
        self._socket_dir = socket_dir
        self._every_user = every_user
        self._abstract = abstract
        self._leases = leases
        self._clock = clock
        self._endpoints: list[Endpoint] = []
        self._off: dict[str, str] = {}
        self._polls = SocketThread(senders)
        self._leftovers = Leftovers(state_dir)
        self._journal = state_dir / "journal"
        self._claim = claim
        self._recorders: dict[ProcessId, tuple[str, KinetoRecorder | None]] = {}
        self._opened_ns = 0
        self._gave_up: dict[ProcessId, float] = {}  # Unix seconds; of processes whose lease is not free yet
        self._ended_ns = Newest[ProcessId, int](_HISTORY)  # when our last capture of a process was over
        self._rates = Newest[ProcessId, planning.EarlierTrace](_HISTORY)  # of its last trace
        self._housekeeper: asyncio.Task[None] | None = None
        self._salvage: Salvage | None = None

    async def open(self) -> None:
        """Bind what can be bound and begin to answer."""
        self._opened_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        await self._bind()
        self._polls.start(self._endpoints)
        await asyncio.to_thread(self._leftovers.load)
        self._take_again(await asyncio.to_thread(self._leftovers.asked))
        self._salvage = await asyncio.to_thread(Salvage, self._leftovers, self._journal, self._claim)
        self._housekeeper = asyncio.create_task(self._keep_house(), name="kineto-housekeeping")

    async def close(self) -> None:
        """Stop answering and give the addresses back."""
        if self._housekeeper is None:
            return
        self._housekeeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._housekeeper
        self._housekeeper = None
        await asyncio.to_thread(self._polls.stop)
        for endpoint in self._endpoints:
            await endpoint.close()
        self._endpoints.clear()

    @property
    def salvaging(self) -> Mapping[Key, asyncio.Event]:
        """Captures of an earlier daemon, and the process, whose trace may be whole where it was written: set when that
        is in the journal, or will not be. Bounded in time.
        """
        return {} if self._salvage is None else self._salvage.settled

    @property
    def socket_file(self) -> Path | None:
        """Where clients with `KINETO_IPC_SOCKET_DIR` send; None where that mode is off."""
        directories = (each.directory for each in self._endpoints if isinstance(each, DirectoryEndpoint))
        return next((directory / DAEMON_NAME for directory in directories), None)

    def socket_lost(self) -> bool:
        """Whether that file is gone, or not ours. Waits for nobody."""
        return any(each.lost() for each in self._endpoints if isinstance(each, DirectoryEndpoint))

    @property
    def out_of_reach(self) -> str:
        """A sentence while somebody keeps others from registering by a file."""
        found = (each.out_of_reach for each in self._endpoints if isinstance(each, DirectoryEndpoint))
        return next(filter(None, found), "")

    async def bind_anew(self) -> None:
        """The socket's file is gone: make it again. Raises Unavailable."""
        for endpoint in self._endpoints:
            if isinstance(endpoint, DirectoryEndpoint):
                try:
                    await endpoint.bind_anew()
                except ModeOff as error:
                    raise Unavailable(str(error)) from error
                self._polls.bound_anew(endpoint)

    def offer(self, process: Process) -> Offer:
        """Whether it polls us and is free."""
        running = self._recorders.get(process.id)
        held = self._leases.held(process.id) if running is None else None
        if held is not None and self._polls.get(process.id) is not None:
            return Offer.held(held)
        modes = {endpoint.mode for endpoint in self._endpoints}
        return offering.offer(
            process,
            self._polls.get(process.id),
            capture=running[0] if running else "",
            idle_after_ns=self._ended_ns.get(process.id, 0),
            now_ns=self._clock(),
            abstract="abstract" in modes,
            directory=self._socket_dir if "directory" in modes else None,
            off="; ".join(self._off.values()),
            out_of_reach=self.out_of_reach,
            expected=self._expected(process.id),
        )

    def plan(self, process: Process, options: Options) -> Plan:
        """Latency, limits and risks; `serves` is False only where the job is about to end."""
        known = self._polls.get(process.id)
        period = known.period_ns if known else None
        plan = planning.plan(process, options, period, self._rates.get(process.id), time.time())
        if known is None:  # a registration is waited for first
            plan = replace(plan, deadline_ns=plan.deadline_ns + int(_EXPECTED_SECONDS * planning.SECOND))
        return plan

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        """One trace of one process."""
        running = self._recorders.get(process.id)
        if running is not None:
            return failures.capture_running(running[0])
        try:
            lease = self._leases.take(process.id, Holder(HolderKind.KINETO, capture=session.capture))
        except Held as error:
            return failures.busy(str(error))
        try:
            return await self._record(process, options, session, lease)
        finally:
            self._leases.end(lease)

    async def _record(self, process: Process, options: Options, session: Session, lease: Lease) -> Recording:
        accepted = Accepted(process.id, process.uid)
        self._recorders[process.id] = (session.capture, None)
        lifetime = Lifetime(process.id)
        try:
            unregistered = await self._registration(process.id, session, lifetime)
            if unregistered is not None:
                return unregistered
            directory = await self._directory(process, options, accepted)
            if isinstance(directory, Recording):
                return directory
            try:
                recorder = KinetoRecorder(
                    process, options, session, self._polls, directory, lifetime, accepted, self._leftovers
                )
                self._recorders[process.id] = (session.capture, recorder)
                self._leases.arm(lease)
                recording = await recorder.run()
                if recorder.over:
                    self._leases.clear(process.id, lease.epoch)
            finally:
                directory.close()
        finally:
            lifetime.close()
            accepted.close()
            del self._recorders[process.id]
            self._gave_up[process.id] = time.time()
            self._ended_ns[process.id] = self._clock()
        if recorder.rate is not None:
            self._rates[process.id] = recorder.rate
        return recording

    def status(self) -> tuple[bool, str, int]:
        """The modes that are open, and why others are not."""
        modes = [endpoint.mode for endpoint in self._endpoints]
        problems = [*self._off.values(), *(text for each in self._endpoints if (text := each.problem()))]
        detail = "; ".join([f"listening: {', '.join(modes) or 'nowhere'}", *problems])
        return bool(modes), detail, len(self.registered())

    def statistics(self) -> dict[str, int]:
        """For metrics: `processes`, `leftovers`, `received`, `answered`, `configs`, `dropped.<reason>`."""
        counts = self._polls.counts()
        return {**counts, "processes": len(self._polls.all()), "leftovers": len(self._leftovers)}

    def registered(self) -> list[Registered]:
        """Processes that poll and are not silent."""
        now = self._clock()
        return [known for known in self._polls.all() if not known.silent(now)]

    def _expected(self, process: ProcessId) -> bool:
        """It (or we) began so recently that its first poll may still be on its way."""
        started_ns = process.start_ticks * planning.SECOND // os.sysconf("SC_CLK_TCK")
        since_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - max(started_ns, self._opened_ns)
        return since_ns < _EXPECTED_SECONDS * planning.SECOND

    async def _registration(self, process: ProcessId, session: Session, lifetime: Lifetime) -> Recording | None:
        """Wait until the process has polled, or for what makes waiting useless. Bounded."""
        began = time.monotonic()
        if self._polls.get(process) is None:
            session.report(State.ARMED, f"waiting for the process to register (≤ {_EXPECTED_SECONDS:.0f} s)")
        while self._polls.get(process) is None:
            waited = time.monotonic() - began
            if lifetime.ended:
                return failures.failed(Reason.TARGET_ENDED, "the process ended before it registered")
            if session.stop.is_set():
                return failures.cancelled()
            if waited >= _REGISTER_SECONDS and not self._expected(process):
                return failures.unregistered(waited, self.out_of_reach)
            await asyncio.sleep(_LOOK_SECONDS)
        return None

    async def _bind(self) -> None:
        wanted: dict[str, Awaitable[Endpoint]] = {}
        if self._abstract:
            wanted["abstract"] = asyncio.to_thread(self._abstract_endpoint)
        if self._socket_dir is not None:
            wanted["directory"] = DirectoryEndpoint.open(self._socket_dir, self._every_user)
        for mode, opening in wanted.items():
            try:
                self._endpoints.append(await opening)
            except ModeOff as error:
                self._off[mode] = str(error)
                log.warning("kineto: %s mode is off: %s", mode, error)

    def _abstract_endpoint(self) -> AbstractEndpoint:
        if self._kept is not None:
            return AbstractEndpoint.again(self._kept)
        endpoint = AbstractEndpoint.open()
        if not passed.may_come():  # else the keeper would close what users have passed there, which may take for ever
            self._keep(endpoint.socket)
        return endpoint

    async def _directory(self, process: Process, options: Options, accepted: Accepted) -> Directory | Recording:
        """Where the process will write, checked as far as can be without it: else a whole window is lost."""
        path = process.environ.get(TRACE_DIRECTORY, "")
        if not path.startswith("/"):
            path = "/tmp"  # noqa: S108 - the only other place that newer torch may write to
        if not can_name(path):
            return failures.failed(
                Reason.FILE_REFUSED,
                f"libkineto cannot be given {TRACE_DIRECTORY}={path!r}: letters, digits and ._+@%,: - only",
            )
        opened = await Directory.of(accepted, path)
        if isinstance(opened, NotTaken):
            return failures.refused(opened)
        try:
            problem, free = await opened.usable(groups(process.id))
        except SilentDirectory as error:
            opened.close()
            return failures.refused(error.refused)
        except OSError as error:
            opened.close()
            return failures.failed(Reason.NO_FILE, f"{path} of the process cannot be used: {error.strerror}")
        need = _SPACE_BYTES + planning.window_ns(options) * _SPACE_BYTES_PER_SECOND // planning.SECOND
        if not problem and (free >= need or options.force):
            return opened
        opened.close()
        if problem:
            return failures.failed(Reason.NO_FILE, f"{problem}; set {TRACE_DIRECTORY} before the process starts")
        return failures.failed(
            Reason.DISK_FULL,
            f"{path} of the process has {free >> 20} MiB free and the trace may need {need >> 20} MiB; "
            "free some, or --force",
        )

    async def _keep_house(self) -> None:
        if self._salvage is not None:
            await self._salvage.take()  # before the first sweep
        while True:
            try:
                await self._sweep()
                self._clear_leases()
            except Exception:  # the daemon lives for weeks; the next round tries again
                log.exception("kineto: sweeping failed")
            await self._wait_to_sweep()

    async def _wait_to_sweep(self) -> None:
        """Until the next round; what is out of reach is looked at again and again meanwhile."""
        until = self._clock() + int(_HOUSEKEEPING_SECONDS * planning.SECOND)
        while self._clock() < until:
            await asyncio.sleep(_REACH_SECONDS)
            if self.out_of_reach:
                await self._sweep_addresses()

    def _take_again(self, asked: Mapping[ProcessId, float]) -> None:
        """Leases of windows that a daemon before us has handed out: free when the process says that it is idle."""
        for process, since in asked.items():
            with contextlib.suppress(Held):
                holder = Holder(HolderKind.KINETO, name="libkineto, asked before profd was restarted")
                lease = self._leases.take(process, holder)
                self._leases.arm(lease)
                self._leases.end(lease)
                self._gave_up[process] = since

    def _clear_leases(self) -> None:
        """Of processes that we gave up waiting for, and that say now that they are not tracing."""
        for lease in self._leases.leases():
            process = lease.subject
            if lease.holder.kind is not HolderKind.KINETO or lease.stage is not Stage.ENDING:
                continue
            if isinstance(process, ProcessId) and self._idle_since(process, self._gave_up.get(process, 0.0)):
                self._leases.clear(process, lease.epoch)
        now = {lease.subject for lease in self._leases.leases()}
        self._gave_up = {process: since for process, since in self._gave_up.items() if process in now}

    async def _sweep(self) -> None:
        await asyncio.to_thread(self._polls.forget_ended)
        await self._sweep_addresses()
        wanted = {recorder.name for _, recorder in list(self._recorders.values()) if recorder is not None}
        await self._leftovers.sweep(self._idle_since, wanted.__contains__)

    async def _sweep_addresses(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.sweep()

    def _idle_since(self, process: ProcessId, since: float) -> bool:
        """It said, well after `since` (Unix seconds), that it is not tracing."""
        known = self._polls.get(process)
        if known is None or not known.takes_config or process in self._recorders:
            return False
        ago_ns = self._clock() - known.last_poll_ns
        return time.time() - ago_ns / planning.SECOND > since + 2 * _HOUSEKEEPING_SECONDS
