"""Readings of a GPU at one moment: names, units and meanings, the same in Prometheus and in traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

VALUES: Final = {
    "busy_ratio": "Share of the driver's last sampling period (up to 1 s) in which a kernel ran.",
    "memory_busy_ratio": "Share of it in which device memory was read or written.",
    "memory_used_bytes": "Device memory in use.",
    "memory_total_bytes": "Device memory there is.",
    "sm_clock_hertz": "Clock of the multiprocessors.",
    "memory_clock_hertz": "Clock of the memory.",
    "power_watts": "Power drawn now.",
    "temperature_celsius": "Temperature of the die.",
}
"""Fields of Gpu."""

GPM_VALUES: Final = {
    "graphics_active_ratio": "Share of the time since it was last asked in which the GPU computed at all.",
    "sm_active_ratio": "Share of its multiprocessors that were busy meanwhile.",
    "sm_occupancy_ratio": "Warps that were active meanwhile, of the most there can be.",
    "tensor_active_ratio": "Share of that time in which tensor cores worked.",
    "fp64_active_ratio": "Share of that time in which FP64 units worked.",
    "fp32_active_ratio": "Share of that time in which FP32 units worked.",
    "fp16_active_ratio": "Share of that time in which FP16 units worked.",
    "memory_bandwidth_ratio": "Bandwidth of device memory in use meanwhile, of the most there can be.",
    "pcie_sent_bytes_per_second": "Sent over PCIe by the GPU.",
    "pcie_received_bytes_per_second": "Received over PCIe by the GPU.",
    "nvlink_sent_bytes_per_second": "Sent over all NVLinks.",
    "nvlink_received_bytes_per_second": "Received over all NVLinks.",
}
"""Keys of Gpu.gpm: what the hardware counted since the last time the same asker asked (Hopper and later)."""

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


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG instance of it, at one moment. Prometheus' base units; None: the driver does not say."""

    index: int  # as NVML counts
    uuid: str
    name: str
    mig: int | None = None  # which instance of the GPU; None: the GPU itself
    minor: int | None = None  # of its device node, /dev/nvidia0
    taken_ns: int = 0  # CLOCK_MONOTONIC, half-way between the first question and the last answer
    error_ns: int = 0  # at most so far from any of the answers
    busy_ratio: float | None = None
    memory_busy_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    sm_clock_hertz: float | None = None
    memory_clock_hertz: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    throttled: frozenset[str] | None = None  # values of THROTTLE_REASONS
    gpm: dict[str, float] = field(default_factory=dict)  # GPM_VALUES; empty where there is none
    processes: dict[int, int | None] = field(default_factory=dict)  # host pid -> bytes; None: not said

    def value(self, name: str) -> float | None:
        """One of VALUES or GPM_VALUES, by its name."""
        found: float | None = getattr(self, name) if name in VALUES else self.gpm.get(name)
        return found


@dataclass(frozen=True, slots=True)
class Reading:
    """All GPUs, or why there are none."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    absent: str = ""  # a sentence when NVML cannot be used at all
    lost: dict[int, str] = field(default_factory=dict)  # index -> what NVML said of a GPU that cannot be read
