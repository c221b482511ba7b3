"""GPU gauges for Prometheus: asked of the driver at every scrape, in the scraper's thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from profd.gpu.nvml import THROTTLE_REASONS, Gpu, Nvml

_GAUGES: Final = {
    "busy_ratio": "Share of the last sampling period in which a kernel ran.",
    "memory_busy_ratio": "Share of it in which device memory was read or written.",
    "memory_used_bytes": "Device memory in use.",
    "memory_total_bytes": "Device memory there is.",
    "sm_clock_hertz": "Clock of the multiprocessors.",
    "memory_clock_hertz": "Clock of the memory.",
    "power_watts": "Power drawn now.",
    "temperature_celsius": "Temperature of the die.",
}


class GpuGauges(Collector):
    """One series a GPU and value; what a driver does not say has none."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def describe(self) -> Iterable[Metric]:
        """None: a registry would otherwise ask the driver when this is added to it."""
        return []

    def collect(self) -> Iterable[Metric]:
        """In the scraper's thread."""
        reading = self._nvml.read()
        if not reading.gpus and not reading.lost:
            return
        for name, text in _GAUGES.items():
            family = GaugeMetricFamily(f"profd_gpu_{name}", text, labels=["gpu", "uuid"])
            for gpu in reading.gpus:
                value = getattr(gpu, name)
                if value is not None:
                    family.add_metric([str(gpu.index), gpu.uuid], value)
            yield family
        yield _throttled(reading.gpus)
        readable = GaugeMetricFamily("profd_gpu_readable", "0: the driver has lost this GPU.", labels=["gpu"])
        for gpu in reading.gpus:
            readable.add_metric([str(gpu.index)], 1)
        for index in reading.lost:
            readable.add_metric([str(index)], 0)
        yield readable


def _throttled(gpus: Iterable[Gpu]) -> Metric:
    family = GaugeMetricFamily(
        "profd_gpu_throttled", "1 while this reason holds the clocks down.", labels=["gpu", "uuid", "reason"]
    )
    for gpu in gpus:
        for reason in THROTTLE_REASONS.values() if gpu.throttled is not None else ():
            family.add_metric([str(gpu.index), gpu.uuid, reason], float(reason in (gpu.throttled or ())))
    return family
