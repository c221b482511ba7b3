"""GPU gauges for Prometheus: asked of the driver at every scrape, in the scraper's thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from profd.gpu.gpm import Gpm
from profd.gpu.nvml import Nvml
from profd.gpu.readings import GPM_VALUES, THROTTLE_REASONS, VALUES, Gpu, Reading

_LABELS = ["gpu", "uuid", "mig"]  # mig: the number of an instance, empty for a GPU itself


class GpuGauges(Collector):
    """One series a GPU, or MIG instance, and value; what a driver does not say has none.

    `processes`: also one a process on it, by pid. Pids of all users, and a series for each that ever was: an
    operator's choice.
    """

    def __init__(self, nvml: Nvml, *, processes: bool = False) -> None:
        self._nvml = nvml
        self.tells_processes = processes
        self._gpm = Gpm()  # of the time between two scrapes

    def describe(self) -> Iterable[Metric]:
        """None: a registry would otherwise ask the driver when this is added to it."""
        return []

    def collect(self) -> Iterable[Metric]:
        """In the scraper's thread."""
        reading = self._nvml.read(self._gpm)
        if not reading.gpus and not reading.lost:
            return
        for name, text in {**VALUES, **GPM_VALUES}.items():
            yield _family(name, text, reading.gpus)
        yield _throttled(reading.gpus)
        if self.tells_processes:
            yield _processes(reading.gpus)
        yield _readable(reading)


def _place(gpu: Gpu) -> list[str]:
    return [str(gpu.index), gpu.uuid, "" if gpu.mig is None else str(gpu.mig)]


def _family(name: str, text: str, gpus: Iterable[Gpu]) -> Metric:
    family = GaugeMetricFamily(f"profd_gpu_{name}", text, labels=_LABELS)
    for gpu in gpus:
        value = gpu.value(name)
        if value is not None:
            family.add_metric(_place(gpu), value)
    return family


def _throttled(gpus: Iterable[Gpu]) -> Metric:
    family = GaugeMetricFamily(
        "profd_gpu_throttled", "1 while this reason holds the clocks down.", labels=[*_LABELS, "reason"]
    )
    for gpu in gpus:
        for reason in THROTTLE_REASONS.values() if gpu.throttled is not None else ():
            family.add_metric([*_place(gpu), reason], float(reason in (gpu.throttled or ())))
    return family


def _processes(gpus: Iterable[Gpu]) -> Metric:
    family = GaugeMetricFamily(
        "profd_gpu_process_memory_used_bytes", "Device memory of one process.", labels=[*_LABELS, "pid"]
    )
    for place, pid, size in _process_memory(gpus):
        family.add_metric([*place, str(pid)], size)
    return family


def _process_memory(gpus: Iterable[Gpu]) -> Iterator[tuple[list[str], int, int]]:
    for gpu in gpus:
        for pid, size in gpu.processes.items():
            if size is not None:
                yield _place(gpu), pid, size


def _readable(reading: Reading) -> Metric:
    family = GaugeMetricFamily("profd_gpu_readable", "0: the driver has lost this GPU.", labels=["gpu"])
    for gpu in reading.gpus:
        if gpu.mig is None:
            family.add_metric([str(gpu.index)], 1)
    for index in reading.lost:
        family.add_metric([str(index)], 0)
    return family
