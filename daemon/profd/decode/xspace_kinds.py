"""Lines and events of an XSpace in the words of the EventTable."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profd.events import DeviceType, Kind

DERIVED_MIN: Final = -559038737  # int32(0xdeadbeef): ids of lines that a viewer derived from others
DERIVED_MAX: Final = DERIVED_MIN + 389
_DEVICE: Final = re.compile(r"/device:(GPU|TPU|XPU)[: ](\d{1,9})$")
_DERIVED_NAMES: Final = frozenset(
    {
        "Steps", "Launch Stats", "Framework Name Scope", "Framework Ops", "TensorFlow Name Scope", "TensorFlow Ops",
        "XLA Modules", "Source code", "Source", "Host Offload Ops", "Command Buffers",
    }
)  # fmt: skip
_TYPES: Final = {"GPU": DeviceType.CUDA, "TPU": DeviceType.TPU, "XPU": DeviceType.XPU}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the events of a plane ran. `device` is None for hosts."""

    device_type: DeviceType
    device: int | None


def place_of(plane: str) -> Place:
    """By the name of the plane: /device:GPU:0, /device:TPU:1, anything else is a host."""
    found = _DEVICE.match(plane)
    if found:
        return Place(_TYPES[found[1]], int(found[2]))
    return Place(DeviceType.CPU, None)


def is_derived(line_id: int, name: str, place: Place) -> bool:
    """A line whose spans repeat, merged, what other lines of its plane hold."""
    if DERIVED_MIN <= line_id <= DERIVED_MAX:
        return True
    if place.device is None:
        return False
    if place.device_type != DeviceType.TPU and name == "XLA Ops":
        return True
    return name.partition(" - from #")[0] in _DERIVED_NAMES


def line_kind(name: str, place: Place, derived: bool) -> Kind | None:
    """The kind of all events of a line; None where each event has its own."""
    if derived:
        return Kind.GPU_USER_ANNOTATION
    if place.device is None:
        return None
    if name == "_counters_":
        return Kind.COUNTER
    if name == "CUPTI overhead":
        return Kind.OVERHEAD
    if name == "XLA TraceMe":
        return Kind.GPU_USER_ANNOTATION
    return None


def event_kind(name: str, place: Place) -> Kind:
    """By the name alone."""
    if place.device is not None:
        if name.startswith(("Memcpy", "MemCpy")):
            return Kind.MEMCPY
        if name.startswith(("Memset", "MemSet")):
            return Kind.MEMSET
        if name.startswith(("MemoryAlloc", "MemoryDealloc", "MemAlloc", "MemFree")):
            return Kind.MEMORY
        return Kind.KERNEL
    if name.startswith("$"):  # as the Python tracer marks its frames: "$file.py:12 function"
        return Kind.PYTHON_FUNCTION
    if re.match(r"(cuda|hip)[A-Z]", name):
        return Kind.RUNTIME
    if re.match(r"cu[A-Z]", name):
        return Kind.DRIVER
    if name in ("MemoryAllocation", "MemoryDeallocation"):
        return Kind.MEMORY
    return Kind.CPU_OP


# What a stat says of the rows that have it, where their name says no more than the first kind.
BY_STAT: Final = {
    "memcpy_details": (Kind.KERNEL, Kind.MEMCPY),
    "memset_details": (Kind.KERNEL, Kind.MEMSET),
    "_r": (Kind.CPU_OP, Kind.USER_ANNOTATION),
    "step_num": (Kind.CPU_OP, Kind.USER_ANNOTATION),
    "correlation_id": (Kind.CPU_OP, Kind.RUNTIME),
}
