"""Stands in for what samples hardware counters (profd.gpu.pm_sampler). FAKE_PM_ERROR: what `enable` raises."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

ERRORS = {each.__name__: each for each in (PermissionError, ValueError, RuntimeError, OSError)}
GPU_AHEAD_NS = 7_000_000_000_000  # its clock is its own


@dataclass
class Sample:
    """One interval."""

    start_timestamp: int
    end_timestamp: int
    metric_values: list[float]


class Collector:
    """Two counters of one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.running = False

    def enable(self) -> None:
        kind, _, text = os.environ.get("FAKE_PM_ERROR", "").partition(": ")
        if kind == "hang":
            time.sleep(600)
        if kind:
            raise ERRORS[kind](text)

    def configure(self, *, metrics: list[str], sampling_interval: int) -> None:
        self.metrics, self.interval = metrics, sampling_interval

    def start(self) -> None:
        self.running = True

    def decode(self, max_samples: int) -> list[Sample]:
        if not self.running:
            return []
        end = time.time_ns() + GPU_AHEAD_NS
        return [Sample(end - self.interval, end, [50.0 + self.device, 25.0])]

    def stop(self) -> None:
        assert self.running

    def disable(self) -> None:
        self.running = False
