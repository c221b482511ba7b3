"""`cupti.cupti`: Python functions in the buffer callbacks of the libcupti that PROFD_CUPTI_LIBRARY names.

Records have an address, and of kernels, copies, fills and calls what bench/gpu/truth.py reads.

FAKE_CUPTI_PYTHON: "no_driver" (its first call raises what cupti-python raises then), "refuses" (it cannot register), or
"shapeless" (records without an address).
"""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Callable
from typing import Any

_library = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
_library.cuptiActivityGetNextRecord.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_BEHAVIOUR = os.environ.get("FAKE_CUPTI_PYTHON", "")
_LONGEST = 256  # bytes of a record

buffers: dict[int, Any] = {}
requests = 0
_registered: list[Any] = []


class cuptiError(Exception):  # noqa: N801  # the name it has there
    """A result that is not CUPTI_SUCCESS."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUPTI_ERROR ({status})")
        self.status = status


class ActivityKind(enum.IntEnum):
    """As CUpti_ActivityKind."""

    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10


_FIELDS: dict[int, dict[str, tuple[int, type[Any]]]] = {  # docs/facts/cupti.md: the same offsets in all versions
    ActivityKind.MEMCPY: {"copy_kind": (4, ctypes.c_uint8), "bytes": (8, ctypes.c_uint64)},
    ActivityKind.MEMSET: {"bytes": (8, ctypes.c_uint64)},
    ActivityKind.DRIVER: {"correlation_id": (32, ctypes.c_uint32)},
    ActivityKind.RUNTIME: {"correlation_id": (32, ctypes.c_uint32)},
    ActivityKind.CONCURRENT_KERNEL: {
        "start": (16, ctypes.c_uint64),
        "end": (24, ctypes.c_uint64),
        "stream_id": (48, ctypes.c_uint32),
        "correlation_id": (92, ctypes.c_uint32),
        "name": (104, ctypes.c_char_p),
    },
}


class Record:
    """A record, copied."""

    def __init__(self, address: int) -> None:
        self._copy = ctypes.create_string_buffer(ctypes.string_at(address, _LONGEST), _LONGEST)
        if _BEHAVIOUR != "shapeless":
            self.ptr = ctypes.addressof(self._copy)
        self.kind = ctypes.c_uint32.from_buffer(self._copy).value

    def __getattr__(self, name: str) -> Any:
        try:
            offset, of = _FIELDS[self.kind][name]
        except KeyError:
            raise AttributeError(name) from None
        value = of.from_buffer(self._copy, offset).value
        return value.decode() if isinstance(value, bytes) else value


def get_timestamp() -> int:
    """The time."""
    if _BEHAVIOUR == "no_driver":
        raise RuntimeError("CUDA driver is not found (libcuda.so.1: cannot open shared object file)")
    now = ctypes.c_uint64()
    _library.cuptiGetTimestamp(ctypes.byref(now))
    return now.value


def activity_enable(kind: int) -> None:
    """As cuptiActivityEnable."""
    _succeed(_library.cuptiActivityEnable(kind))


def activity_disable(kind: int) -> None:
    """As cuptiActivityDisable."""
    _succeed(_library.cuptiActivityDisable(kind))


def activity_flush_all(flag: int) -> None:
    """As cuptiActivityFlushAll."""
    _succeed(_library.cuptiActivityFlushAll(flag))


def _succeed(result: int) -> None:
    if result:
        raise cuptiError(result)


def activity_register_callbacks(
    requested: Callable[[], tuple[int, int]], completed: Callable[[list[Record]], None]
) -> None:
    """As cuptiActivityRegisterCallbacks; memory of buffers is this module's."""
    if _BEHAVIOUR == "refuses":
        raise cuptiError(35)

    def on_request(buffer: Any, size: Any, records_max: Any) -> None:
        global requests
        requests += 1
        size[0], records_max[0] = requested()
        if size[0]:
            made = ctypes.create_string_buffer(size[0] + _LONGEST)
            buffer[0] = ctypes.addressof(made)
            buffers[buffer[0]] = made
        else:
            buffer[0] = None

    def on_completion(_context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
        at = ctypes.c_void_p()
        records = []
        while _library.cuptiActivityGetNextRecord(buffer, valid, ctypes.byref(at)) == 0:
            assert at.value is not None
            records.append(Record(at.value))
        completed(records)
        del buffers[buffer]

    _registered[:] = [_REQUESTED(on_request), _COMPLETED(on_completion)]
    _library.cuptiActivityRegisterCallbacks(*_registered)
