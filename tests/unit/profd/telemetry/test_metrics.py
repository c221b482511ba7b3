"""What a scrape gives, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from profd.attached.ingest import arena as arena_module
from profd.attached.ingest.chunk import Refusal
from profd.attached.ingest.intake import IngestStatistics
from profd.attached.sdk.source import SdkStatistics
from profd.capture.records import CaptureRecord, TargetRecord
from profd.disk.space import Space
from profd.errors import BadInput, Exhausted
from profd.journal.journal import Journal
from profd.limits import JOURNAL_BYTES_MAX
from profd.model.capture import Loss, Reason, State
from profd.model.load import Load, Stretch
from profd.service.disk_gauges import DiskGauges
from profd.service.observe import LiveCollector, ObservedAudit, Reading
from profd.sources.pyspy.stack import ThreadStack
from profd.targets.process import Process, ProcessId
from profd.telemetry import metrics as metrics_module
from profd.telemetry.metrics import Metrics
from profd.telemetry.metrics_server import MetricsServer
from profd.trust import caller as callers
from profd.trust.audit import AuditLog, AuditStatistics
from prometheus_client import generate_latest

from tests.support.captures import process


def scrape(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://{server.host}:{server.port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_served_until_closed() -> None:
    server = MetricsServer(Metrics(), "127.0.0.1", 0)
    server.open()
    assert "profd_build_info{" in scrape(server)
    assert "process_resident_memory_bytes" in scrape(server)
    server.close()
    with pytest.raises(OSError, match="refused"):
        scrape(server)


def test_taken_address_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadInput, match="--metrics off"):
        MetricsServer(Metrics(), "127.0.0.1", taken.getsockname()[1])


def test_closing_what_was_never_opened() -> None:
    MetricsServer(Metrics(), "127.0.0.1", 0).close()


def test_losses_never_make_new_labels() -> None:
    metrics = Metrics()
    metrics.count_losses([Loss("decode", "truncated", 3), Loss("/etc", "user text", 4), Loss("decode", "x", 1)])
    value = metrics.registry.get_sample_value
    assert value("profd_events_dropped_total", {"stage": "decode", "reason": "truncated"}) == 3
    assert value("profd_events_dropped_total", {"stage": "other", "reason": "other"}) == 4
    assert value("profd_events_dropped_total", {"stage": "decode", "reason": "other"}) == 1


def test_reasons_of_the_decoders_are_known() -> None:
    root = Path(__file__).parents[4]
    sources = [*(root / "native/scan").glob("*.cpp"), *(root / "daemon/profd/decode").glob("*.py")]
    said = {reason for path in sources for reason in re.findall(r'lose\("([a-z_]+)"', path.read_text())}
    assert said
    assert said <= metrics_module._LOSS_REASONS


class Audit:
    def __init__(self) -> None:
        self.actions: list[str] = []

    def write(self, action: str, uid: int, **details: object) -> None:
        self.actions.append(action)


def ended_capture() -> CaptureRecord:
    target = TargetRecord(host="h", pid=1, start_ticks=2, uid=3, user="u", command="c", source="kineto")
    target.state, target.start_ns, target.events = State.PARTIAL, 2_000_000_000, 7
    target.reason = Reason.TRUNCATED
    target.lost = [Loss("source", "truncated", 2)]
    refused = TargetRecord(host="h", pid=2, start_ticks=2, uid=3, user="u", command="c", state=State.REFUSED)
    return CaptureRecord("c1", "", "u", 3, 1_000_000_000, finished_ns=5_000_000_000, targets=[target, refused])


def test_ended_captures_are_counted_when_the_audit_hears_of_them() -> None:
    metrics, audit = Metrics(), Audit()
    observed = ObservedAudit(cast(AuditLog, audit), metrics)
    records = {"c1": ended_capture()}
    observed.find = records.get
    for action, capture in (("capture.start", "c1"), ("capture.end", "c1"), ("capture.end", "forgotten")):
        observed.write(action, 3, capture=capture)
    value = metrics.registry.get_sample_value
    assert audit.actions == ["capture.start", "capture.end", "capture.end"]
    assert value("profd_captures_total", {"result": "partial"}) == 1
    assert value("profd_captures_total", {"result": "refused"}) == 1
    assert value("profd_captures_total", {"result": "stored"}) == 0  # which a rate needs
    assert value("profd_capture_reasons_total", {"result": "partial", "reason": "truncated"}) == 1
    assert value("profd_capture_reasons_total", {"result": "refused", "reason": "none"}) == 1
    assert value("profd_capture_duration_seconds_sum") == 4
    assert value("profd_capture_duration_seconds_count") == 1
    assert value("profd_trigger_latency_seconds_sum") == 1
    assert value("profd_ingest_events_total", {"source": "kineto"}) == 7
    assert value("profd_events_dropped_total", {"stage": "source", "reason": "truncated"}) == 2


async def test_who_looks_at_a_process_is_written_down_before_it_is_looked_at(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", now_ns=lambda: 7)

    async def stacks(process: Process, native: bool) -> Sequence[ThreadStack]:
        assert '"process.where"' in audit.path.read_text()
        return []

    callers.enter(callers.Caller(uid=700, gid=700, user="operator", admin=True, pid=0))
    await ObservedAudit(audit, Metrics()).looked(stacks)(process(5, uid=1000), False)
    audit.close()
    line = {"time_ns": 7, "action": "process.where", "uid": 700, "admin": True, "pid": 5, "owner": 1000}
    assert json.loads(audit.path.read_text()) == line


async def test_live_values_are_read_on_the_loop() -> None:
    metrics = Metrics()
    kineto = {"received": 9, "answered": 7, "dropped.stale": 2, "configs": 1, "processes": 4, "leftovers": 0}
    reading = Reading(
        active=Counter(kineto=2), enabled=False, store_bytes=5, jobs={"done": 3}, workers_died=1, kineto=kineto
    )
    reading.workers, reading.jobs_waiting, reading.reload_failed = {"busy": 2}, 4, True
    reading.audit = AuditStatistics(written=6, counted=5, failed=4, copies_sent=3, copies_dropped=2)
    loop = asyncio.get_running_loop()

    def read() -> Reading:
        assert asyncio.get_running_loop() is loop
        return reading

    metrics.registry.register(LiveCollector(loop, read))
    server = MetricsServer(metrics, "127.0.0.1", 0)
    server.open()
    text = await asyncio.to_thread(scrape, server)
    server.close()
    for line in (
        'profd_captures_active{source="kineto"} 2.0',
        "profd_enabled 0.0",
        "profd_store_bytes 5.0",
        'profd_worker_jobs_total{result="done"} 3.0',
        "profd_workers_died_total 1.0",
        'profd_workers{state="busy"} 2.0',
        'profd_workers{state="idle"} 0.0',
        "profd_worker_jobs_waiting 4.0",
        "profd_config_last_reload_successful 0.0",
        'profd_kineto_datagrams_total{result="answered"} 7.0',
        'profd_kineto_datagrams_total{result="stale"} 2.0',
        "profd_kineto_configs_total 1.0",
        'profd_audit_entries_total{result="written"} 6.0',
        'profd_audit_entries_total{result="counted"} 5.0',
        'profd_audit_entries_total{result="failed"} 4.0',
        'profd_audit_copies_total{result="sent"} 3.0',
        'profd_audit_copies_total{result="dropped"} 2.0',
        "profd_kineto_processes 4.0",
    ):
        assert line in text.splitlines()


async def test_attached_processes_and_what_arrives_from_them() -> None:
    metrics = Metrics()
    reading = Reading(
        sdk=SdkStatistics(attached=3, armed=1, refused={"hostile": 2}, seconds={"all": 0.5}, held=3),
        ingest=IngestStatistics(expected=1, chunks=7, events=1000, bytes=4000, again=2, sync_failures=0),
    )
    metrics.registry.register(LiveCollector(asyncio.get_running_loop(), lambda: reading))
    server = MetricsServer(metrics, "127.0.0.1", 0)
    server.open()
    text = await asyncio.to_thread(scrape, server)
    server.close()
    for line in (
        "profd_sdk_processes 3.0",
        "profd_sdk_armed 1.0",
        'profd_sdk_connections_refused_total{why="hostile"} 2.0',
        'profd_sdk_connections_refused_total{why="refused"} 0.0',
        "profd_connections_held 3.0",
        'profd_sdk_record_seconds_total{kind="all"} 0.5',
        "profd_ingest_streams 1.0",
        "profd_ingest_chunks_total 7.0",
        "profd_ingest_bytes_total 4000.0",
        "profd_ingest_chunks_again_total 2.0",
    ):
        assert line in text.splitlines(), line


def test_losses_of_a_recording_have_their_labels() -> None:
    metrics = Metrics()
    metrics.count_losses([Loss("target", "arena_full", 3), Loss("ingest", "missing", 2), Loss("streamer", "crc", 1)])
    value = metrics.registry.get_sample_value
    assert value("profd_events_dropped_total", {"stage": "target", "reason": "arena_full"}) == 3
    assert value("profd_events_dropped_total", {"stage": "ingest", "reason": "missing"}) == 2


def test_refusals_have_the_kinds_that_the_page_names() -> None:
    root = Path(__file__).parents[4]
    page = (root / "docs" / "configuration.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| `profd_refusals_total")]
    assert set(re.findall(r"`(\w+)`", row)) == set(metrics_module.REFUSALS)
    asked = [*(root / "daemon/profd/rpc").glob("*.py"), root / "daemon/profd/trust/control.py"]
    kinds = {kind for path in asked for kind in re.findall(r'\b(?:Share|Rate)\(\s*\*?\(?\s*"(\w+)"', path.read_text())}
    assert len(kinds) >= 10
    assert kinds <= set(metrics_module.REFUSALS)


def test_a_refusal_of_no_kind_makes_no_new_label() -> None:
    metrics = Metrics()
    metrics.count_refusal("calls", 2)
    metrics.count_refusal("text of a user")
    value = metrics.registry.get_sample_value
    assert (value("profd_refusals_total", {"kind": "calls"}), value("profd_refusals_total", {"kind": "other"})) == (
        2,
        1,
    )
    assert value("profd_refusals_total", {"kind": "jobs"}) == 0


def test_the_disk_and_the_journal_as_they_are(tmp_path: Path) -> None:
    space = Space(tmp_path, 0.05, measure=lambda: (400, 1000))
    journal = Journal(tmp_path / "journal", space)
    (journal.directory("c1", ProcessId(7, 8)) / "raw").write_bytes(bytes(5000))
    with space.claim(1, "x") as claim:
        claim.hold(0, 10, 10)
        values = {family.name: family.samples[0].value for family in DiskGauges(journal, space).collect()}
    assert values == {
        "profd_journal_bytes": 5000,
        "profd_journal_limit_bytes": JOURNAL_BYTES_MAX,
        "profd_disk_free_bytes": 400,
        "profd_disk_size_bytes": 1000,
        "profd_disk_reserve_bytes": 50,
        "profd_disk_promised_bytes": 10,
    }


def test_a_disk_that_does_not_answer_takes_no_other_metric_away(tmp_path: Path) -> None:
    def broken() -> tuple[int, int]:
        raise Exhausted("no answer")

    space = Space(tmp_path, 0.05, measure=broken)
    assert list(DiskGauges(Journal(tmp_path / "journal", space), space).collect()) == []


def test_reasons_of_ingest_and_arenas_are_known() -> None:
    said = {*arena_module._REASONS, *(refusal.value for refusal in Refusal), "missing"}
    assert said <= metrics_module._LOSS_REASONS


def test_what_targets_took_of_the_host_has_no_sample_before_it_is_known() -> None:
    metrics = Metrics()
    during, after = Stretch(2_000_000_000, 1_000_000_000, 500_000_000, 7, 3), Stretch(4_000_000_000, 0, 0, 0, 0)
    metrics.count_load("pyspy", Load(during=during))  # nothing to compare it with
    assert "profd_target_seconds_total{" not in generate_latest(metrics.registry).decode()
    metrics.count_load("pyspy", Load(during=during, after=after))
    text = generate_latest(metrics.registry).decode()
    for line in (
        'profd_target_seconds_total{source="pyspy",when="during"} 2.0',
        'profd_target_seconds_total{source="pyspy",when="after"} 4.0',
        'profd_target_cpu_seconds_total{source="pyspy",when="during"} 1.0',
        'profd_target_run_queue_seconds_total{source="pyspy",when="during"} 0.5',
        'profd_target_context_switches_total{kind="wait",source="pyspy",when="during"} 7.0',
        'profd_target_context_switches_total{kind="preemption",source="pyspy",when="during"} 3.0',
    ):
        assert line in text
    assert 'when="before"' not in text
