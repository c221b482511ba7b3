"""The tables of an nvprof database, and their rows as checked arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.decode.cuda_calls import DRIVER_CALLS, RUNTIME_CALLS
from profd.events import NO_END, DeviceType, Kind
from profd.events.table import Array

PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
STRINGS: Final = "StringTable"

OBJECT_PROCESS: Final = 1  # CUpti_ActivityObjectKind
OBJECT_THREAD: Final = 2
MARKER_INSTANT: Final = 1  # CUpti_ActivityFlag

_COPIES: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_MEMORIES: Final = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array", 5: "Managed"}
_OVERHEADS: Final = {
    1: "Driver Compiler",
    1 << 16: "Activity Buffer Flush",
    2 << 16: "Instrumentation",
    3 << 16: "Resource",
}


@dataclass(frozen=True, slots=True)
class Activity:
    """One kind of rows with a start and an end. Without a needed column the table cannot be read."""

    table: str
    kind: Kind
    category: str
    needed: tuple[str, ...]
    wanted: tuple[str, ...] = ()

    @property
    def on_device(self) -> bool:
        """Whether its rows ran on a GPU."""
        return "deviceId" in self.needed

    @property
    def device_type(self) -> DeviceType:
        """Of its rows."""
        return DeviceType.CUDA if self.on_device else DeviceType.CPU


_CALL: Final = ("start", "end", "cbid", "processId", "threadId", "correlationId")
_PLACE: Final = ("start", "end", "deviceId", "contextId", "streamId")
_KERNEL: Final = (
    *(f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"),
    *("staticSharedMemory", "dynamicSharedMemory", "registersPerThread"),
)

# Parents before what they hold: of rows that start together the first is the outer one.
ACTIVITIES: Final = (
    Activity(PREFIX + "RUNTIME", Kind.RUNTIME, "cuda_runtime", _CALL, ("returnValue",)),
    Activity(PREFIX + "DRIVER", Kind.DRIVER, "cuda_driver", _CALL, ("returnValue",)),
    Activity(PREFIX + "KERNEL", Kind.KERNEL, "kernel", (*_PLACE, "correlationId", "name"), _KERNEL),
    Activity(PREFIX + "CONCURRENT_KERNEL", Kind.KERNEL, "kernel", (*_PLACE, "correlationId", "name"), _KERNEL),
    Activity(
        PREFIX + "MEMCPY",
        Kind.MEMCPY,
        "gpu_memcpy",
        (*_PLACE, "copyKind", "bytes", "correlationId"),
        ("srcKind", "dstKind", "runtimeCorrelationId"),
    ),
    Activity(
        PREFIX + "MEMSET",
        Kind.MEMSET,
        "gpu_memset",
        (*_PLACE, "bytes", "correlationId"),
        ("memoryKind", "value"),
    ),
)
OVERHEAD: Final = Activity(PREFIX + "OVERHEAD", Kind.OVERHEAD, "overhead", ("start", "end", "overheadKind"))


@dataclass(slots=True)
class Columns:
    """Rows as int64 columns, absent (NULL, or no such column) as NO_END. `lost` are rows that were none."""

    values: dict[str, Array]
    count: int
    lost: int = 0

    def of(self, name: str) -> Array:
        """A column."""
        have = self.values.get(name)
        return have if have is not None else np.full(self.count, NO_END, dtype=np.int64)

    def keep(self, which: Array) -> Columns:
        """The rows where `which` is true."""
        return Columns({name: values[which] for name, values in self.values.items()}, int(which.sum()), self.lost)


def to_columns(rows: Sequence[tuple[Any, ...]], names: Sequence[str], needed: Sequence[str]) -> Columns:
    """A needed value that is no integer loses its row, any other counts as absent.

    SQLite types values, not columns: anything may stand anywhere.
    """
    good = rows
    columns = list(zip(*rows, strict=True))
    whole = [set(map(type, column)) <= {int} for column in columns]
    must = [place for place, name in enumerate(names) if name in needed]
    if not all(whole[place] for place in must if columns):
        good = [row for row in rows if all(type(row[place]) is int for place in must)]
        columns = list(zip(*good, strict=True))
    values: dict[str, Array] = {}
    for name, column, integers in zip(names, columns, whole, strict=False):
        if not integers:
            column = tuple(value if type(value) is int else NO_END for value in column)
        values[name] = np.array(column, dtype=np.int64)
    return Columns(values, len(good), len(rows) - len(good))


def call_name(kind: Kind, cbid: int) -> str:
    """The function behind a call id."""
    known, api = (RUNTIME_CALLS, "runtime") if kind == Kind.RUNTIME else (DRIVER_CALLS, "driver")
    return known.get(cbid, f"CUDA {api} call {cbid}")


def copy_name(kind: int, source: int, target: int) -> str:
    """As Kineto names copies: `Memcpy HtoD (Pageable -> Device)`."""
    direction = _COPIES.get(kind, "unknown")
    if source not in _MEMORIES or target not in _MEMORIES:
        return f"Memcpy {direction}"
    return f"Memcpy {direction} ({_MEMORIES[source]} -> {_MEMORIES[target]})"


def set_name(memory: int) -> str:
    """As Kineto names fills: `Memset (Device)`."""
    return f"Memset ({_MEMORIES[memory]})" if memory in _MEMORIES else "Memset"


def overhead_name(kind: int) -> str:
    """The profiler's own work."""
    return _OVERHEADS.get(kind, f"Overhead {kind}")


def object_ids(blob: Any) -> tuple[int, int] | None:
    """(process id, thread id) of an objectId of a process or thread; None where it is none."""
    if not isinstance(blob, bytes) or len(blob) < 8:
        return None
    return int.from_bytes(blob[:4], "little"), int.from_bytes(blob[4:8], "little")
