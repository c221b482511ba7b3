"""Builds the daemon out of its parts, and takes it apart again in the opposite order."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from profproto.v1 import capture_pb2_grpc, host_pb2_grpc, ingest_pb2_grpc, query_pb2_grpc, trace_pb2_grpc

from profd import __version__
from profd.attached.agents import returning
from profd.attached.agents.porters import Porters
from profd.attached.agents.registry import AgentRegistry
from profd.attached.agents.server import AgentServer
from profd.attached.collectives import Collectives
from profd.attached.ingest.intake import Ingest
from profd.attached.ingest.pushed import Pushed
from profd.attached.ingest.streamers import Streamers
from profd.attached.sdk.arena_size import ArenaSizes
from profd.attached.sdk.cuda import CudaSource
from profd.attached.sdk.handover import SdkParts
from profd.attached.sdk.planning import Collecting
from profd.attached.sdk.source import SdkSource
from profd.capture.asked import AskedByPrograms
from profd.capture.death import DeathWatch
from profd.capture.disk_watch import DiskWatch
from profd.capture.estimate import HostHeadroom
from profd.capture.manager import CaptureManager
from profd.capture.planner import ManagerSettings
from profd.capture.switch import Switch
from profd.disk.space import Urgency
from profd.errors import BadInput, ProfdError
from profd.gpu.checks import GpuChecks
from profd.gpu.gauges import GpuGauges
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.nvml import Nvml
from profd.gpu.pm_sampling import PmSampling, both
from profd.gpu.sampling import Sampler
from profd.gpu.sidecar import BeginSidecar
from profd.host.config import Config
from profd.host.doctor import Examiner, Finding
from profd.host.groups import gid_of
from profd.host.instance import Lock, check_one_filesystem, check_ours, make_directory
from profd.host.kept import Kept
from profd.host.notify import Notifier
from profd.importing.recordings import Recordings
from profd.journal.journal import Journal
from profd.kernel import identity, passed
from profd.observers.observers import Observers
from profd.questions.jobs import DIRECTORIES, GLANCES, INDEXES, JOBS, SHORT
from profd.questions.library import Library
from profd.questions.packed import KEPT_ONLY
from profd.rpc.answers import Answers
from profd.rpc.calls import HeldAnswers
from profd.rpc.captures import CaptureServicer
from profd.rpc.guard import Guard
from profd.rpc.host import HostServicer, HostView
from profd.rpc.ingest import IngestServicer
from profd.rpc.live import live
from profd.rpc.query import QueryServicer
from profd.rpc.server import RpcServer
from profd.rpc.traces import TraceServicer
from profd.service.disk_gauges import DiskGauges
from profd.service.observe import LiveCollector, ObservedAudit, Reading
from profd.service.reload import Reloader, Use
from profd.service.sockets import Sockets
from profd.sources.base import Source
from profd.sources.jax.source import JaxSource
from profd.sources.kineto.endpoints import AbstractEndpoint
from profd.sources.kineto.senders import Senders
from profd.sources.kineto.source import KinetoSource
from profd.sources.pyspy import where
from profd.sources.pyspy.source import PySpySource
from profd.store.captures import CaptureRecords
from profd.store.store import Store, StoreLimits
from profd.targets import delegation
from profd.targets.errands.office import errands
from profd.targets.look_ahead import LookAhead
from profd.targets.memory import MemoryLimits
from profd.targets.table import ProcessTable
from profd.telemetry import logs
from profd.telemetry.metrics import Metrics
from profd.telemetry.metrics_server import MetricsServer
from profd.trust.audit import AuditLog
from profd.trust.audit_copy import copier
from profd.trust.control import ControlServer
from profd.trust.token import Tokens
from profd.workers import gate
from profd.workers.asked import Asked
from profd.workers.pool import WorkerPool
from profd.workers.turns import JobKind

CALLS_GRACE_SECONDS: Final = 10.0  # for calls that still run when everything else has ended
KEPT_AS: Final = "kineto"  # the abstract socket's name at the service manager

log = logging.getLogger("profd")


class Daemon:
    """Everything one daemon holds. `open` once, then `run_until_stopped`, which closes."""

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config] | None = None,
        senders: Senders | None = None,
        kept: Kept | None = None,
    ) -> None:
        """`read`: the settings as they are now, for SIGHUP; raises ProfdError. `senders`: the kernel's filter.

        `kept`: descriptors of an earlier daemon.
        """
        self._senders = senders or Senders()
        self._kept = kept or Kept()
        self._config = config
        self._closing = contextlib.AsyncExitStack()
        self._stop = asyncio.Event()
        self._notifier = Notifier()
        self._reloader = Reloader(config, read or (lambda: config), self._notifier)
        self._metrics = Metrics()
        self._tokens = Tokens()
        self._sockets = Sockets(lambda: self._reloader.config, self._closing)
        self._memory = MemoryLimits()
        self._nvml = Nvml()
        self._porters = Porters(change_identity=os.geteuid() == 0 and not config.user)
        # What reads connections of callers: it costs a process of each, so only where something may be passed there.
        self._carriers = self._porters if passed.may_come() else None
        self._agents = AgentRegistry(only_uid=os.geteuid() if config.user else None, porters=self._porters)
        self._table = ProcessTable(labelled=self._agents.labelled)
        looks = LookAhead(self._table.get)
        self._closing.callback(looks.close)
        self._leases = LeaseKeeper(DeathWatch(self._table))
        self._agents.on_disarmed, self._agents.on_greeted = self._leases.clear, self._leases.greeted
        self._agents.on_changed = looks.ask  # a capture then begins without a look at files
        self._kineto = KinetoSource(
            config.kineto_socket_dir,
            config.kineto_abstract,
            config.state_dir,
            self._leases,
            every_user=not config.user,
            senders=self._senders,
            claim=lambda uid: self._store.space.claim(uid, "a trace of before the restart", Urgency.RECORDING),
            kept=self._kept.datagrams(AbstractEndpoint.NAME) if config.kineto_abstract else None,
            keep=functools.partial(self._notifier.keep, KEPT_AS),
        )
        self._metrics_address = "off"

    async def open(self) -> None:
        """Start everything and say so. Raises ProfdError with what to do; nothing is left behind then."""
        try:
            await self._open()
        except BaseException:
            await self._closing.aclose()
            raise

    async def _open(self) -> None:
        config = self._config
        gid_of("admin_group", config.admin_group)
        self._listen_to_signals()
        self._claim()
        self._closing.callback(self._notifier.close)
        for name in self._kept.close():
            self._notifier.forget(name)
        self._closing.callback(self._porters.close)  # the last: they have what callers are told
        if not config.user:
            delegation.use(found := await asyncio.to_thread(delegation.opened))
            log.info("cgroups of children", extra={"why_not": found.why_not} if found.why_not else {})
        await asyncio.to_thread(errands.open)
        self._closing.push_async_callback(asyncio.to_thread, errands.close)
        self._audit_log = AuditLog(config.state_dir / "audit.jsonl", copier=copier(config.audit_copy))
        self._closing.callback(self._audit_log.close)
        self._audit = ObservedAudit(self._audit_log, self._metrics)
        metrics = self._bind_metrics()
        self._pool = await self._start_workers()
        self._store = await self._open_store()
        self._library = Library(
            self._store,
            Asked(self._pool, short=SHORT, glances=GLANCES, looks=KEPT_ONLY),
            socket.gethostname(),
            self._audit.used,
        )
        self._sources = await self._open_sources()
        self._manager = await self._open_captures()
        self._rpc = await self._serve_calls()
        self._metrics.registry.register(LiveCollector(asyncio.get_running_loop(), self._reading))
        self._gpu_gauges = GpuGauges(self._nvml, processes=self._config.gpu_process_metrics)
        self._metrics.registry.register(self._gpu_gauges)
        self._metrics.registry.register(DiskGauges(self._journal, self._store.space))
        if metrics is not None:
            metrics.open()
        self._serve_agents()
        self._serve_tokens()  # until the captures have ended: their streamers ask for one
        self._watch_sockets()
        self._manager.go_on()
        # Closed in the opposite order: refuse, end the captures (their watchers see how), then the calls.
        self._closing.push_async_callback(self._manager.close)
        self._closing.push_async_callback(self._rpc.refuse)
        self._audit.write("daemon.start", os.geteuid(), pid=os.getpid(), mode=config.mode)
        self._reloader.on_changed = lambda keys: self._audit.write("daemon.reload", os.geteuid(), changed=keys)
        self._reloader.open(self._uses())
        self._closing.callback(self._reloader.close)
        log.info(
            f"profd {__version__} listens on {config.socket}",
            extra={"mode": config.mode, "state_dir": str(config.state_dir), "metrics": self._metrics_address},
        )
        self._notifier.ready(f"listening on {config.socket}")

    async def run_until_stopped(self) -> None:
        """Until SIGTERM or SIGINT: then refuse, drain and close. A second signal ends at once."""
        await self._stop.wait()
        self._notifier.stopping()
        await self._closing.aclose()
        log.info("stopped")

    def _listen_to_signals(self) -> None:
        """Before anything else: a signal that comes while we start is not to kill us half-way."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signalled)
        # A terminal that goes away says so by it, and then nobody is there to end us.
        hung_up = self._signalled if sys.stderr.isatty() else self._reloader.soon
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)

    def _signalled(self) -> None:
        if self._stop.is_set():
            os._exit(1)
        log.info("stopping; a second signal ends at once")
        self._stop.set()

    # --- the parts, in the order they start ---

    def _claim(self) -> None:
        """Directories, and the right to be the only daemon on them."""
        config = self._config
        make_directory(config.state_dir, self._sockets.passed)
        check_ours(config.state_dir)
        check_one_filesystem(config.state_dir)
        make_directory(config.socket.parent, self._sockets.passed)
        for path, what in (
            (config.state_dir / "profd.lock", f"the state directory {config.state_dir}"),
            (config.socket.with_name(f"{config.socket.name}.lock"), f"the socket {config.socket}"),
        ):
            self._closing.callback(Lock(path, what).close)
        self._sockets.clear()

    def _bind_metrics(self) -> MetricsServer | None:
        """Early: a taken address is to be told before anything else has happened."""
        if self._config.metrics is None:
            return None
        host, port = self._config.metrics
        try:
            server = MetricsServer(self._metrics, host, port)
        except BadInput as error:
            if self._config.metrics_asked_for:
                raise
            log.warning("no metrics", extra={"why": str(error)})
            return None
        self._closing.callback(server.close)
        self._metrics_address = f"{server.host}:{server.port}"
        return server

    async def _start_workers(self) -> WorkerPool:
        identity.use(identity.SAME if self._config.user else identity.choose(self._config.worker_user))
        pool = WorkerPool(
            self._config.workers,
            gates=self._config.state_dir / gate.FOLDER,
            known=JOBS,
            directories=DIRECTORIES,
            beside=INDEXES,
        )
        pool.on_waited = lambda kind, seconds: self._metrics.worker_wait.labels(kind.name.lower()).observe(seconds)
        self._closing.push_async_callback(pool.close)
        log.info("workers started", extra={"count": pool.size, "confinement": ", ".join(await pool.open())})
        return pool

    async def _open_store(self) -> Store:
        store = await asyncio.to_thread(Store, self._config.state_dir, _store_limits(self._config))
        self._closing.callback(store.close)
        self._pool.claim = lambda uid: store.space.claim(uid, "what this question writes aside")
        store.on_evicted = lambda trace: self._audit.write("trace.evict", trace.uid, trace=trace.id, bytes=trace.bytes)
        return store

    def _own_pids(self) -> list[int]:
        return [
            os.getpid(),
            *self._pool.pids,
            *self._streamers.pids,
            *self._porters.pids,
            *self._porters.droppers.pids,
            *errands.pids,
        ]

    async def _open_captures(self) -> CaptureManager:
        state_dir = self._config.state_dir
        settings = ManagerSettings(host=socket.gethostname(), own_pids=self._own_pids, operator=os.geteuid())
        begin_sidecar: BeginSidecar = Sampler(self._nvml).begin
        if self._config.pm_sampling_us:
            counters = PmSampling(self._leases, self._config.pm_sampling_us * 1000)
            begin_sidecar = both(begin_sidecar, counters.begin)
            settings = replace(settings, sidecar_risk=counters.risk)
        journal = self._journal = await asyncio.to_thread(Journal, state_dir / "journal", self._store.space)
        manager = CaptureManager(
            sources=self._sources,
            table=self._table,
            records=await asyncio.to_thread(CaptureRecords, state_dir),
            storing=Recordings(self._store, lambda uid: Asked(self._pool, JobKind.CAPTURE, uid)),
            journal=journal,
            audit=self._audit,
            switch=Switch(self._config.disabled_file),
            headroom=HostHeadroom(state_dir, self._memory, self._store.space),
            ended=DeathWatch(self._table),
            settings=settings,
            begin_sidecar=begin_sidecar,
            on_load=self._metrics.count_load,
        )
        journal.owner_of = lambda capture: record.owner_uid if (record := manager.record(capture)) else 0
        await manager.open(self._sdk.orphaned(), self._kineto.salvaging)
        watch = DiskWatch(lambda: self._store.space.left(Urgency.RECORDING), lambda: manager.active, manager.end_all)
        watch.open()
        self._closing.push_async_callback(watch.close)
        self._sdk.on_returned, self._sdk.on_recovered = manager.returned, manager.recovered
        self._sdk.on_compared = manager.compared
        self._audit.find = manager.record
        self._asked = AskedByPrograms(manager, self._agents, self._audit)
        self._agents.on_asked = self._asked.asked
        self._closing.callback(self._asked.close)
        return manager

    def _open_ingest(self) -> None:
        """What takes events in; the streamers that send them are started when there is something to drain."""
        self._ingest = Ingest(self._store.space)
        self._ingest.open()
        self._closing.callback(self._ingest.close)
        root = os.geteuid() == 0 and not self._config.user
        self._streamers = Streamers(
            self._config.socket, self._ingest.find, change_identity=root, room=lambda: self._memory.left(os.getpid())
        )
        self._closing.push_async_callback(self._streamers.close)

    def _make_sources(self) -> list[Source]:
        """All there are; in which order they are asked, they declare. A new one is made here."""
        collecting, sizes = _collecting(self._config), ArenaSizes(self._memory)
        parts = SdkParts(self._ingest, self._streamers, self._config.arena_bytes, collecting, sizes)
        attached = (self._agents, parts, self._config.agents, self._config.state_dir / "journal", self._leases)
        sampler = PySpySource()
        sampler.starts.on_waited = self._metrics.sampler_wait.observe
        self._observers = Observers(
            enabled=self._config.build_observers, change_identity=os.geteuid() == 0 and not self._config.user
        )
        self._closing.push_async_callback(self._observers.close)
        self._sdk = SdkSource(*attached, sampler, self._observers)
        self._cuda = CudaSource(*attached)
        return [
            self._sdk,
            self._kineto,
            JaxSource(journal=self._config.state_dir / "journal"),
            self._cuda,
            sampler,
        ]

    async def _open_sources(self) -> list[Source]:
        self._closing.push_async_callback(self._leases.close)
        await self._agents.remember(self._config.state_dir / returning.FILE, self._table)
        self._open_ingest()
        sources = self._make_sources()
        for source in sources:
            try:
                await source.open()
            except ProfdError as error:
                # Its status and its offers say why; the others still serve.
                log.warning("source is off", extra={"source": source.name, "why": str(error)})
            self._closing.push_async_callback(_closed(source))
        return sources

    async def _serve_calls(self) -> RpcServer:
        guard = Guard(self._tokens, self._audit, self._metrics, self._streamers.payer)
        server = RpcServer(
            self._config.socket, guard, self._servicers(guard.held), self._config.admin_group, self._carriers
        )
        self._closing.push_async_callback(server.close, CALLS_GRACE_SECONDS)

        async def serve() -> None:
            await server.open(self._sockets.permit)

        await serve()
        self._sockets.keep("grpc", self._config.socket, serve)
        self._sockets.files.also = lambda: self._metrics.count_refusal("connections", server.look())
        self._closing.push_async_callback(server.refuse)
        return server

    def _serve_agents(self) -> None:
        server = AgentServer(self._sockets.listen(self._config.agents), self._agents)
        self._sockets.keep_listening("agents", self._config.agents, server)

    def _watch_sockets(self) -> None:
        kineto = self._kineto.socket_file
        if kineto is not None:
            self._sockets.files.add("kineto", kineto, self._kineto.bind_anew, self._kineto.socket_lost)
        self._sockets.watch()

    def _serve_tokens(self) -> None:
        config = self._config
        server = ControlServer(
            self._sockets.listen(config.control),
            self._tokens,
            config.socket,
            config.admin_group,
            only_uid=os.geteuid() if config.user else None,
            on_denied=lambda caller, why: self._audit.write("denied", caller.uid, method="token", why=why),
            on_refused=self._metrics.count_refusal,
            payer=self._streamers.payer,
            closing=None if self._carriers is None else self._carriers.droppers,
        )
        self._control = server
        self._sockets.keep_listening("control", config.control, server)

    # --- settings that change while it runs ---

    def _uses(self) -> dict[str, Use]:
        """What takes over each of them."""
        return {
            "admin_group": self._use_admin_group,
            "socket_group": self._use_socket_group,
            "store_bytes": lambda config: setattr(self._store, "limits", _store_limits(config)),
            "disabled_file": lambda config: setattr(self._manager.switch, "file", config.disabled_file),
            **dict.fromkeys(
                ("log_level", "log_format"), lambda config: logs.setup(config.log_level, config.log_format)
            ),
            **dict.fromkeys(("sdk.arena_bytes", "gpu.collector", "gpu.cuda_graphs", "gpu.detach"), self._use_recording),
            "gpu.process_metrics": lambda config: setattr(
                self._gpu_gauges, "tells_processes", config.gpu_process_metrics
            ),
            "torch.build": lambda config: setattr(self._observers, "enabled", config.build_observers),
            "audit.copy": lambda config: self._audit_log.copy_to(copier(config.audit_copy)),
        }

    def _use_admin_group(self, config: Config) -> None:
        self._control.set_admin_group(config.admin_group)
        self._tokens.forget_admins()  # behind it: whoever is asked about the new one is asked by it
        self._rpc.set_admin_group(config.admin_group)
        self._manager.end_admins()

    def _use_socket_group(self, config: Config) -> None:
        self._sockets.use_group(config)
        if config.user:  # whose sockets are nobody else's in any case
            return
        group = gid_of("socket_group", config.socket_group)
        self._tokens.keep_members(group)
        self._asked.keep_members(group)
        if group is not None:
            self._rpc.keep_members(group)
            self._streamers.renew()  # those that run have not that group, and no other way in

    def _use_recording(self, config: Config) -> None:
        for source in (self._sdk, self._cuda):
            source.configure(config.arena_bytes, _collecting(config))

    def _servicers(self, held: HeldAnswers) -> dict[str, tuple[Callable[[Any, Any], None], Any]]:
        storing = Asked(self._pool, JobKind.PUSHED)
        pushed = Pushed(self._ingest, Library(self._store, storing, socket.gethostname(), self._audit.used))
        self._closing.callback(pushed.close)
        collectives = Collectives(self._agents, Asked(self._pool, short=SHORT))
        answers = Answers(self._library, self._pool.crowded, held)
        return {
            "profd.v1.CaptureService": (
                capture_pb2_grpc.add_CaptureServiceServicer_to_server,
                CaptureServicer(self._manager, self._audit.looked(where.stacks), collectives=collectives),
            ),
            "profd.v1.TraceService": (
                trace_pb2_grpc.add_TraceServiceServicer_to_server,
                TraceServicer(self._library, self._audit, answers, self._pool.awaited),
            ),
            "profd.v1.QueryService": (
                query_pb2_grpc.add_QueryServiceServicer_to_server,
                QueryServicer(self._library, answers, live(self._manager)),
            ),
            "profd.v1.IngestService": (
                ingest_pb2_grpc.add_IngestServiceServicer_to_server,
                IngestServicer(self._ingest, pushed),
            ),
            "profd.v1.HostService": (
                host_pb2_grpc.add_HostServiceServicer_to_server,
                HostServicer(self._host_view()),
            ),
        }

    def _host_view(self) -> HostView:
        config = self._config
        gpu = GpuChecks(holders=lambda: self._leases.foreign_holders, leases=self._leases.leases)

        def findings() -> list[Finding]:
            return Examiner(
                *(self._reloader.config, identity.current(), self._audit_log, self._nvml),
                gpu=gpu,
                observers=self._observers.counts,
                out_of_reach=lambda: self._kineto.out_of_reach,
                senders=self._senders,
            ).findings()

        return HostView(
            mode=config.mode,
            state_dir=config.state_dir,
            sources=self._sources,
            switch=self._manager.switch,
            captures_active=lambda: self._manager.active,
            store_bytes=lambda: self._store.statistics().bytes,
            store_limit_bytes=self._store.limit_bytes,
            checks=findings,
        )

    def _reading(self) -> Reading:
        """Live values for a scrape."""
        store, pool = self._store.statistics(), self._pool.statistics()
        return Reading(
            active=self._manager.active_sources(),
            enabled=self._manager.switch.why_disabled() is None,
            store_bytes=store.bytes,
            store_limit_bytes=store.limit_bytes,
            evicted=store.evicted,
            jobs={"done": pool.jobs_done, "failed": pool.jobs_failed},
            workers={"idle": pool.idle, "busy": pool.running},
            jobs_waiting=pool.waiting,
            workers_died=pool.workers_died,
            kineto=self._kineto.statistics(),
            sockets_remade=dict(self._sockets.files.remade),
            connections=self._rpc.connections(),
            send_seconds=self._streamers.cpu_seconds(),
            sdk=self._sdk.statistics(),
            ingest=self._ingest.statistics(),
            leases=self._leases.statistics(),
            audit=self._audit_log.statistics(),
            reload_failed=self._reloader.failed,
        )


def _store_limits(config: Config) -> StoreLimits:
    """An operator's number is not cut by a share of the filesystem."""
    return StoreLimits() if config.store_bytes is None else StoreLimits(config.store_bytes, share=1.0)


def _collecting(config: Config) -> Collecting:
    return Collecting(config.cuda_graphs == "whole", config.gpu_collector == "cupti-python", config.gpu_detach)


def _closed(source: Source) -> Callable[[], Awaitable[None]]:
    """Close a source; what goes wrong is logged, because the others are to be closed too."""

    async def close() -> None:
        try:
            await source.close()
        except Exception:
            log.exception("a source did not close", extra={"source": source.name})

    return close
