"""Captures in the metrics."""

from __future__ import annotations

from profd.capture.metering import Meter
from profd.capture.model import Loss, State
from profd.capture.records import TargetRecord
from profd.metrics import Metrics


def test_a_capture_in_numbers() -> None:
    metrics = Metrics()
    meter = Meter(metrics)
    target = TargetRecord("host", 1, 2, 3, "alice", "python", source="kineto")
    value = metrics.registry.get_sample_value
    meter.began(target)
    assert value("profd_captures_active", {"source": "kineto"}) == 1
    meter.window_opened(target, 2_000_000_000)
    assert value("profd_trigger_latency_seconds_sum") == 2
    target.state, target.trace, target.events = State.PARTIAL, "t1", 7
    target.lost = [Loss("decode", "bad_time", 4)]
    meter.settled(target, 3_000_000_000)
    assert value("profd_captures_active", {"source": "kineto"}) == 0
    assert value("profd_captures_total", {"result": "partial"}) == 1
    assert value("profd_capture_duration_seconds_sum") == 3
    assert value("profd_ingest_events_total", {"source": "kineto"}) == 7
    assert value("profd_events_dropped_total", {"stage": "decode", "reason": "bad_time"}) == 4
