"""The work of the daemon's parts, as metrics. Nothing here decides anything."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from profd.attached.ingest.intake import IngestStatistics
from profd.attached.sdk.source import SdkStatistics
from profd.capture.records import CaptureRecord, TargetRecord
from profd.gpu.holders import HolderKind
from profd.gpu.leases import LeaseStatistics, Stage
from profd.model.capture import State
from profd.model.question import Cost
from profd.questions.table import QUESTIONS
from profd.rpc.captures import Where
from profd.rpc.door import ConnectionCounts
from profd.sources.pyspy.stack import ThreadStack
from profd.store.catalog import TraceRecord
from profd.targets.process import Process
from profd.telemetry.metrics import Metrics
from profd.trust import caller as callers
from profd.trust.audit import AuditLog, AuditStatistics
from profd.trust.caller import Caller

_ANSWER_SECONDS: Final = 5.0
_GLANCES: Final = frozenset(f"trace.{one.verb}" for one in QUESTIONS.values() if one.cost is Cost.GLANCE)

log = logging.getLogger("profd.telemetry.metrics")


@dataclass(slots=True)
class Reading:
    """Values of one moment, read on the event loop."""

    active: Counter[str] = field(default_factory=Counter)  # targets by source
    enabled: bool = True
    store_bytes: int = 0
    store_limit_bytes: int = 0
    evicted: int = 0
    jobs: dict[str, int] = field(default_factory=dict)  # by result
    workers: dict[str, int] = field(default_factory=dict)  # by what they do
    jobs_waiting: int = 0
    workers_died: int = 0
    kineto: dict[str, int] = field(default_factory=dict)  # KinetoSource.statistics()
    send_seconds: float = 0.0  # CPU time of streamers
    sockets_remade: dict[str, int] = field(default_factory=dict)  # by which socket
    connections: ConnectionCounts = field(default_factory=ConnectionCounts)  # to gRPC's socket
    sdk: SdkStatistics = field(default_factory=SdkStatistics)
    leases: LeaseStatistics = field(default_factory=LeaseStatistics)
    ingest: IngestStatistics = field(default_factory=IngestStatistics)
    audit: AuditStatistics = field(default_factory=AuditStatistics)
    reload_failed: bool = False  # the last reload of the settings


class LiveCollector(Collector):
    """Asks the event loop at every scrape, so that between scrapes nothing is counted twice or polled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Callable[[], Reading]) -> None:
        self._loop = loop
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """In the scraper's thread."""

        async def on_the_loop() -> Reading:
            return self._read()

        try:
            reading = asyncio.run_coroutine_threadsafe(on_the_loop(), self._loop).result(_ANSWER_SECONDS)
        except (FutureTimeout, RuntimeError) as error:
            log.warning("no live metrics", extra={"why": repr(error)})
            return
        yield from _families(reading)


class ObservedAudit:
    """The audit log, and the metrics of every capture that it sees end."""

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics
        self.find: Callable[[str], CaptureRecord | None] = lambda capture: None

    def write(self, action: str, uid: int, **details: object) -> None:
        """One line. Never raises."""
        self._audit.write(action, uid, **details)
        if action != "capture.end":
            return
        record = self.find(str(details.get("capture", "")))
        if record is None:
            return
        for target in record.targets:
            _count(self._metrics, record, target)

    def used(self, action: str, caller: Caller, record: TraceRecord) -> None:
        """A trace is read, or was imported."""
        if action == "trace.import":
            self._audit.write(action, caller.uid, trace=record.id, events=record.events)
        else:
            again = action in _GLANCES
            self._audit.read(action, caller.uid, record.owner_uid, again=again, trace=record.id)

    def looked(self, where: Where) -> Where:
        """The same question, written down: stacks of a process are asked for."""

        async def audited(process: Process, native: bool) -> Sequence[ThreadStack]:
            self._audit.read("process.where", callers.current().uid, process.uid, pid=process.id.pid)
            return await where(process, native)

        return audited


def _count(metrics: Metrics, record: CaptureRecord, target: TargetRecord) -> None:
    metrics.captures.labels(target.state.label).inc()
    if target.state is not State.STORED:
        metrics.capture_reasons.labels(target.state.label, target.reason.label or "none").inc()
    if not target.source:
        return
    if record.finished_ns is not None:
        metrics.capture_duration.observe(max(0, record.finished_ns - record.created_ns) / 1e9)
    if target.start_ns is not None:
        metrics.trigger_latency.observe(max(0, target.start_ns - record.created_ns) / 1e9)
    if target.events:
        metrics.ingest_events.labels(target.source).inc(target.events)
    metrics.count_losses(target.lost)


def _families(reading: Reading) -> Iterable[Metric]:
    active = GaugeMetricFamily("profd_captures_active", "Targets that are being captured now.", labels=["source"])
    for source, count in sorted(reading.active.items()):
        active.add_metric([source], count)
    yield active
    yield GaugeMetricFamily(
        *("profd_config_last_reload_successful", "0 where the last reload of the settings was refused."),
        value=int(not reading.reload_failed),
    )
    yield GaugeMetricFamily("profd_enabled", "1 while captures are allowed.", value=int(reading.enabled))
    yield GaugeMetricFamily("profd_store_bytes", "Size of all stored traces.", value=reading.store_bytes)
    yield GaugeMetricFamily("profd_store_limit_bytes", "Size the store may grow to.", value=reading.store_limit_bytes)
    evictions = CounterMetricFamily("profd_store_evictions", "Traces deleted to stay in bounds.", labels=["reason"])
    evictions.add_metric(["size"], reading.evicted)
    yield evictions
    jobs = CounterMetricFamily("profd_worker_jobs", "Jobs of workers.", labels=["result"])
    for result, count in reading.jobs.items():
        jobs.add_metric([result], count)
    yield jobs
    workers = GaugeMetricFamily("profd_workers", "Worker processes, by what they do.", labels=["state"])
    for state in ("idle", "busy"):
        workers.add_metric([state], reading.workers.get(state, 0))
    yield workers
    yield GaugeMetricFamily("profd_worker_jobs_waiting", "Jobs that wait for a worker.", value=reading.jobs_waiting)
    yield CounterMetricFamily("profd_workers_died", "Workers that ended on their own.", value=reading.workers_died)
    remade = CounterMetricFamily(
        "profd_sockets_remade", "Socket files that were gone and have been made anew.", labels=["socket"]
    )
    for name in ("grpc", "control", "agents", "kineto"):
        remade.add_metric([name], reading.sockets_remade.get(name, 0))
    yield remade
    yield from _connections(reading.connections)
    yield from _kineto(reading.kineto)
    yield from _sdk(reading.sdk)
    yield CounterMetricFamily(
        "profd_sdk_send_seconds", "CPU time of streamers, outside of the jobs' processes.", value=reading.send_seconds
    )
    yield from _leases(reading.leases)
    yield from _ingest(reading.ingest)
    yield from _audit(reading.audit)


def _connections(counts: ConnectionCounts) -> Iterable[Metric]:
    yield GaugeMetricFamily("profd_connections", "Connections to the gRPC socket that are open.", value=counts.open)
    yield CounterMetricFamily(
        *("profd_connections_throttled", "Times that a connection was not read for a while, for its user's rate."),
        value=counts.throttled,
    )
    yield CounterMetricFamily("profd_connections_foreign", "Connections that kept to no HTTP/2.", value=counts.foreign)


def _kineto(counts: dict[str, int]) -> Iterable[Metric]:
    """`answered`, and a result for each reason why a datagram was not; they add up to what came in."""
    datagrams = CounterMetricFamily(
        "profd_kineto_datagrams", "Datagrams to kineto's sockets, by what became of them.", labels=["result"]
    )
    for name, count in sorted(counts.items()):
        if name == "answered" or name.startswith("dropped."):
            datagrams.add_metric([name.removeprefix("dropped.")], count)
    yield datagrams
    yield CounterMetricFamily(
        "profd_kineto_waits",
        "Waits for what was passed with datagrams, that were ended (Linux before 6.16).",
        value=counts.get("waits", 0),
    )
    yield CounterMetricFamily("profd_kineto_configs", "Configs that were handed out.", value=counts.get("configs", 0))
    processes = counts.get("processes", 0)
    yield GaugeMetricFamily("profd_kineto_processes", "Processes that are registered.", value=processes)


def _sdk(counts: SdkStatistics) -> Iterable[Metric]:
    yield GaugeMetricFamily("profd_sdk_processes", "Processes that are attached.", value=counts.attached)
    yield GaugeMetricFamily("profd_sdk_armed", "Attached processes that record now.", value=counts.armed)
    connections = CounterMetricFamily(
        "profd_sdk_connections_refused", "Connections of agents that were not kept.", labels=["why"]
    )
    for why in ("refused", "hostile"):
        connections.add_metric([why], counts.refused.get(why, 0))
    yield connections
    yield GaugeMetricFamily(
        "profd_connections_held",
        "Connections that nobody reads, whose descriptors their users keep from being closed.",
        value=counts.held,
    )
    yield CounterMetricFamily(
        "profd_sdk_requests_refused",
        "Captures that programs asked for and did not get.",
        value=counts.refused.get("requests_refused", 0),
    )
    seconds = CounterMetricFamily(
        "profd_sdk_record_seconds", "Time that attached processes spent recording, by what.", labels=["kind"]
    )
    for kind, spent in sorted(counts.seconds.items()):
        seconds.add_metric([kind], spent)
    yield seconds
    steps = CounterMetricFamily(
        "profd_sdk_step_seconds", "Median steps of recordings, summed: during them and right after.", labels=["when"]
    )
    for when, summed in sorted(counts.steps.items()):  # none before the first recording that saw both
        steps.add_metric([when], summed)
    yield steps
    yield CounterMetricFamily(
        "profd_sdk_stepping_recordings", "Recordings that profd_sdk_step_seconds sums up.", value=counts.stepping
    )


def _leases(counts: LeaseStatistics) -> Iterable[Metric]:
    now = GaugeMetricFamily(
        "profd_gpu_leases", "Processes whose CUPTI, and GPUs whose counters, somebody has.", labels=["scope", "stage"]
    )
    for scope in ("process", "gpu"):
        for stage in Stage:
            now.add_metric([scope, stage.value], counts.now.get((scope, stage.value), 0))
    yield now
    refused = CounterMetricFamily(
        "profd_gpu_lease_refusals", "Leases that were refused, by their holder.", labels=["holder"]
    )
    for holder in HolderKind:
        refused.add_metric([holder.value], counts.refused.get(holder.value, 0))
    yield refused


def _ingest(counts: IngestStatistics) -> Iterable[Metric]:
    """What arrives while it is recorded; profd_ingest_events counts what is stored at the end."""
    yield GaugeMetricFamily("profd_ingest_streams", "Processes whose events are awaited.", value=counts.expected)
    yield CounterMetricFamily("profd_ingest_chunks", "Chunks of events taken in.", value=counts.chunks)
    yield CounterMetricFamily("profd_ingest_bytes", "Bytes of chunks taken in.", value=counts.bytes)
    yield CounterMetricFamily("profd_ingest_chunks_again", "Chunks that had come before.", value=counts.again)
    yield CounterMetricFamily(
        "profd_ingest_sync_failures", "Journal files that could not be synced.", value=counts.sync_failures
    )


def _audit(counts: AuditStatistics) -> Iterable[Metric]:
    lines = CounterMetricFamily(
        "profd_audit_entries", "What was to be written to the audit log, by what became of it.", labels=["result"]
    )
    for result in ("written", "counted", "failed"):
        lines.add_metric([result], getattr(counts, result))
    yield lines
    copies = CounterMetricFamily(
        "profd_audit_copies",
        "Lines of the audit log for journald or syslog, by what became of them.",
        labels=["result"],
    )
    for result in ("sent", "dropped"):
        copies.add_metric([result], getattr(counts, f"copies_{result}"))
    yield copies
