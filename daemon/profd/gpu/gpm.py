"""GPM: what a GPU's own counters say of the time between two questions, through nvidia-ml-py.

Hopper and later; older GPUs, drivers that keep it to administrators and GPUs
without any of the values are absent. It is no counter hardware of CUPTI's and
takes nothing away from a profiler.
"""

from __future__ import annotations

import math
from typing import Any, Final

_MIB: Final = float(1 << 20)
# Name in GPM_VALUES -> (constant of NVML's, what one of its units is in ours).
_METRICS: Final = {
    "graphics_active_ratio": ("NVML_GPM_METRIC_GRAPHICS_UTIL", 0.01),
    "sm_active_ratio": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "sm_occupancy_ratio": ("NVML_GPM_METRIC_SM_OCCUPANCY", 0.01),
    "tensor_active_ratio": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "fp64_active_ratio": ("NVML_GPM_METRIC_FP64_UTIL", 0.01),
    "fp32_active_ratio": ("NVML_GPM_METRIC_FP32_UTIL", 0.01),
    "fp16_active_ratio": ("NVML_GPM_METRIC_FP16_UTIL", 0.01),
    "memory_bandwidth_ratio": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "pcie_sent_bytes_per_second": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MIB),
    "pcie_received_bytes_per_second": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MIB),
    "nvlink_sent_bytes_per_second": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MIB),
    "nvlink_received_bytes_per_second": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MIB),
}


class Gpm:
    """The last sample of each GPU, for one asker: another one would cut its time short. Not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}  # uuid -> sample; None: it has no GPM
        self._library: Any = None

    def read(self, library: Any, handle: Any, uuid: str, instance: int | None = None) -> dict[str, float]:
        """The values since the last call for this GPU; none at the first. Raises NVMLError for a lost GPU.

        `instance`: number of the GPU instance of MIG, whose `handle` is that of the whole GPU.
        """
        self._library = library
        if uuid in self._last and self._last[uuid] is None:
            return {}
        try:
            sample = self._sample(library, handle, instance, first=uuid not in self._last)
            before, self._last[uuid] = self._last.get(uuid), sample
            if before is None:
                return {}
            try:
                return _values(library, before, sample)
            finally:
                library.nvmlGpmSampleFree(before)
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_GPU_IS_LOST:
                raise
            return {}

    def close(self) -> None:
        """Free what is held, while the library still is."""
        for sample in self._last.values():
            if sample is not None:
                self._library.nvmlGpmSampleFree(sample)
        self._last.clear()

    def _sample(self, library: Any, handle: Any, instance: int | None, *, first: bool) -> Any:
        """None where there is no GPM. Raises NVMLError where it is there and does not answer."""
        if first and not library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return None
        sample = library.nvmlGpmSampleAlloc()
        try:
            if instance is None:
                library.nvmlGpmSampleGet(handle, sample)
            else:
                library.nvmlGpmMigSampleGet(handle, instance, sample)
        except library.NVMLError:
            library.nvmlGpmSampleFree(sample)
            raise
        return sample


def _values(library: Any, before: Any, after: Any) -> dict[str, float]:
    question = library.c_nvmlGpmMetricsGet_t()
    question.version = library.NVML_GPM_METRICS_GET_VERSION
    question.numMetrics = len(_METRICS)
    question.sample1, question.sample2 = before, after
    for place, (constant, _) in enumerate(_METRICS.values()):
        question.metrics[place].metricId = getattr(library, constant)
    library.nvmlGpmMetricsGet(question)
    found = {}
    for (name, (_, scale)), answer in zip(_METRICS.items(), question.metrics, strict=False):
        # Shares of no time at all are no numbers.
        if answer.nvmlReturn == library.NVML_SUCCESS and math.isfinite(answer.value):
            found[name] = answer.value * scale
    return found
