"""Columns of the EventTable: names, dtypes, units and what absence looks like.

The Parquet schema of the store is the same, with absent as null. In memory
absence is a sentinel per column, so that native code sees plain arrays.
A table has the columns it needs: a missing column is absent in every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

NO_CODE: Final = -1  # in dictionary-coded columns (int32)
NO_ROW: Final = -1  # in columns that hold rows or track numbers
NO_END: Final = np.iinfo(np.int64).min  # also: absent, in every other int64 column
NO_SCOPE: Final = 255


class Kind(IntEnum):
    """What an event is. The names in lower case are a contract (`profctl tree --json`)."""

    OTHER = 0
    CPU_OP = 1
    USER_ANNOTATION = 2
    PYTHON_FUNCTION = 3
    INSTANT = 4
    RUNTIME = 5
    DRIVER = 6
    KERNEL = 7
    MEMCPY = 8
    MEMSET = 9
    SYNC = 10
    OVERHEAD = 11
    GPU_USER_ANNOTATION = 12
    MEMORY = 13
    COUNTER = 14
    SAMPLE = 15
    TRACE = 16

    @property
    def label(self) -> str:
        """The name in the JSON contract: `cpu_op`."""
        return self.name.lower()


class DeviceType(IntEnum):
    """Where an event ran. Labels are a contract: CPU, CUDA, HIP, XPU, MTIA, TPU, other."""

    OTHER = 0
    CPU = 1
    CUDA = 2
    HIP = 3
    XPU = 4
    MTIA = 5
    TPU = 6

    @property
    def label(self) -> str:
        """The name in the JSON contract."""
        return "other" if self is DeviceType.OTHER else self.name


class Scope(IntEnum):
    """What kind of code an op is: the values of at::RecordScope that the engine knows of."""

    FUNCTION = 0
    BACKWARD_FUNCTION = 1
    TORCHSCRIPT_FUNCTION = 2
    USER_SCOPE = 7


@dataclass(frozen=True, slots=True)
class Column:
    """One column: numpy dtype, the value that means absent (None: never absent), dictionary if coded."""

    dtype: type[np.generic]
    absent: int | float | None
    dictionary: str | None = None
    doc: str = ""


def _code(dictionary: str, doc: str) -> Column:
    return Column(np.int32, NO_CODE, dictionary, doc)


def _int64(doc: str) -> Column:
    return Column(np.int64, NO_END, None, doc)


COLUMNS: Final[dict[str, Column]] = {
    # identity
    "name": _code("name", "what it is called"),
    "kind": Column(np.uint8, None, None, "Kind"),
    "cat": _code("cat", "category as imported"),
    "phase": Column(np.uint8, 0, None, "ASCII code of the Chrome phase it came as; pairs are 'B' or 'b'"),
    # time
    "start": Column(np.int64, None, None, "Unix ns"),
    "end": _int64("Unix ns; absent: no end was seen; instants end where they start"),
    "start_ps": Column(np.uint16, None, None, "picoseconds (0-999) after `start`; 0 where only ns are known"),
    "end_ps": Column(np.uint16, None, None, "picoseconds (0-999) after `end`"),
    # place: numbers of Tracks.processes and Tracks.threads
    "process": Column(np.int32, NO_ROW, None, "track number of the process"),
    "thread": Column(np.int32, NO_ROW, None, "track number of the thread, unique across processes"),
    "end_thread": Column(np.int32, NO_ROW, None, "track number of the thread it ended on; absent: `thread`"),
    "device_type": Column(np.uint8, None, None, "DeviceType"),
    "device": _int64("device index as recorded"),
    "context": _int64("CUDA context"),
    "stream": _int64("CUDA stream"),
    # links
    "correlation": _int64("CUPTI correlation id: a launch and what it launched share it"),
    "external": _int64("external id: a launch or kernel names its op by it"),
    "linked": Column(np.int64, NO_ROW, None, "row of the launch that caused this device event"),
    # autograd
    "sequence": _int64("autograd sequence number"),
    "fwd_thread": _int64("forward thread id as recorded; 0 or absent: not a backward op"),
    "scope": Column(np.uint8, NO_SCOPE, None, "at::RecordScope of an op; see Scope"),
    "is_async": Column(np.uint8, 0, None, "1: may overlap its neighbours and end on another thread"),
    "debug_handle": _int64("of an op of a mobile model"),
    # tree
    "parent": Column(np.int64, NO_ROW, None, "row of the enclosing event (launch -> kernel included)"),
    "depth": Column(np.int32, None, None, "0 = root"),
    "self_time": _int64("ns: duration less direct children on the same thread; absent for instants"),
    # context
    "stack": _code("stack", "call stack as recorded, frames joined by ';', innermost first as torch records them"),
    "module": _code("module", "module hierarchy as recorded"),
    "inputs": _code("inputs", "JSON object of Input Dims, Input type, Input Strides, Concrete Inputs"),
    # memory and values
    "bytes": _int64("of an allocation (negative: a free) or a copy"),
    "ptr": _int64("address of an allocation"),
    "total_allocated": _int64("bytes in use after it"),
    "total_reserved": _int64("bytes reserved after it"),
    "value": Column(np.float64, float("nan"), None, "of a counter with one series"),
    "flops": Column(np.float64, float("nan"), None, "floating point operations, computed from shapes"),
    "weight": _int64("of a sample: how many samples this row stands for"),
}

LISTS: Final[dict[str, str]] = {
    "impl_ptrs": "of each tensor among the inputs of an op, in order: address of its TensorImpl; 0: undefined",
    "storage_ptrs": "the same: address of its storage's data",
}
"""List columns. They are arguments of the type ints: few rows have them."""
