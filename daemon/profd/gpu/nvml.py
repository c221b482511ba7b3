"""What NVML says of the GPUs of this host, read through nvidia-ml-py.

A GPU may lack any single value (vGPU, MIG, an old driver): that value is
absent, the others are not. A lost GPU loses all of its values and is named.
Calls into a driver can hang; callers run `read` in a thread of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

THROTTLE_REASONS: Final = {
    0x002: "applications_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "hw_power_brake",
    0x100: "display_clock",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons that hold clocks down. Idle (0x001) is not one of them."""

_GPUS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment. Units are Prometheus' base units; None: the driver does not say."""

    index: int
    uuid: str
    name: str
    busy_ratio: float | None = None  # of the last sampling period, some kernel ran
    memory_busy_ratio: float | None = None  # of it, device memory was read or written
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    sm_clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    throttled: frozenset[str] | None = None  # values of THROTTLE_REASONS


@dataclass(frozen=True, slots=True)
class Reading:
    """All GPUs, or why there are none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    absent: str = ""  # a sentence when NVML cannot be used at all
    lost: dict[int, str] = field(default_factory=dict)  # index -> what NVML said of a GPU that cannot be read


class Nvml:
    """The library, initialised at the first reading that finds it. Readings of several threads take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None

    def read(self) -> Reading:
        """What the driver says now. Never raises for the lack of a driver, a GPU or a value."""
        with self._lock:
            absent = self._open()
            if absent:
                return Reading(absent=absent)
            library = self._library
            try:
                count = min(library.nvmlDeviceGetCount(), _GPUS_MAX)
                driver = str(library.nvmlSystemGetDriverVersion())
            except library.NVMLError as error:
                return Reading(absent=f"NVML does not answer ({error})")
            gpus, lost = [], {}
            for index in range(count):
                try:
                    gpus.append(_gpu(library, index))
                except library.NVMLError as error:
                    lost[index] = str(error)
            return Reading(tuple(gpus), driver, "", lost)

    def close(self) -> None:
        """Let go of the library."""
        with self._lock:
            if self._library is not None:
                self._library.nvmlShutdown()
                self._library = None

    def _open(self) -> str:
        """Why NVML cannot be used; empty when it can."""
        if self._library is not None:
            return ""
        try:
            import pynvml  # not before it is needed: 60 ms
        except ImportError:
            return "nvidia-ml-py is not installed"
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return f"no NVIDIA driver answers ({error})"
        self._library = pynvml
        return ""


def _gpu(library: Any, index: int) -> Gpu:
    """Raises NVMLError if the GPU itself cannot be reached."""
    handle = library.nvmlDeviceGetHandleByIndex(index)
    uuid = str(library.nvmlDeviceGetUUID(handle))

    def said(question: str, *arguments: Any) -> Any:
        ask: Callable[..., Any] = getattr(library, question)
        try:
            return ask(handle, *arguments)
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_GPU_IS_LOST:
                raise
            return None

    rates = said("nvmlDeviceGetUtilizationRates")
    memory = said("nvmlDeviceGetMemoryInfo")
    reasons = said("nvmlDeviceGetCurrentClocksEventReasons")
    return Gpu(
        index=index,
        uuid=uuid,
        name=str(said("nvmlDeviceGetName") or ""),
        busy_ratio=None if rates is None else rates.gpu / 100,
        memory_busy_ratio=None if rates is None else rates.memory / 100,
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        sm_clock_hertz=_scaled(said("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM), 1e6),
        memory_clock_hertz=_scaled(said("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM), 1e6),
        power_watts=_scaled(said("nvmlDeviceGetPowerUsage"), 1e-3),
        temperature_celsius=_scaled(said("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU), 1.0),
        throttled=None if reasons is None else frozenset(why for bit, why in THROTTLE_REASONS.items() if reasons & bit),
    )


def _scaled(value: Any, by: float) -> float | None:
    return None if value is None else value * by
