"""Captures in numbers for Prometheus."""

from __future__ import annotations

from typing import Final

from profd.capture.records import TargetRecord
from profd.metrics import Metrics

SECOND_NS: Final = 1_000_000_000


class Meter:
    """Satisfies `profd.capture.ports.Observer`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def began(self, target: TargetRecord) -> None:
        """A source has begun with a target, or a retry with its raw files."""
        self._metrics.captures_active.labels(target.source).inc()

    def window_opened(self, target: TargetRecord, waited_ns: int) -> None:
        """The window is open, so long after the request."""
        self._metrics.trigger_latency.observe(waited_ns / SECOND_NS)

    def settled(self, target: TargetRecord, took_ns: int) -> None:
        """A target that had begun is terminal."""
        self._metrics.captures_active.labels(target.source).dec()
        self._metrics.capture_duration.observe(took_ns / SECOND_NS)
        self.ended(target)
        if target.trace:
            self._metrics.ingest_events.labels(target.source).inc(target.events or 0)
            self._metrics.count_losses(target.lost)

    def ended(self, target: TargetRecord) -> None:
        """A target is terminal, begun or not."""
        self._metrics.captures.labels(target.state.label).inc()
