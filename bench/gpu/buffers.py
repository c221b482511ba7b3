"""CUPTI's raw buffers, caught before any of our code has seen them, through ctypes.

For recording a corpus only: Python runs in CUPTI's callbacks here, which our collector never does.
"""

from __future__ import annotations

import ctypes
import threading
import time
from ctypes import POINTER, byref, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Final

# CUpti_ActivityKind, as native/gpu/cupti_abi.h has them.
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL, OVERHEAD, MEMCPY_PEER, SYNCHRONIZATION = 1, 2, 4, 5, 10, 17, 22, 38
KINDS: Final = (RUNTIME, DRIVER, KERNEL, MEMCPY, MEMCPY_PEER, MEMSET, SYNCHRONIZATION, OVERHEAD)
KERNEL_NAME_AT: Final = 104  # of the pointer in a kernel's record, CUDA 12 and 13
# Of start and end in a record, CUDA 12 and 13 (native/gpu/cupti_abi.h).
TIMES_AT: Final = {
    KERNEL: (16, 24),
    MEMCPY: (16, 24),
    MEMCPY_PEER: (16, 24),
    MEMSET: (16, 24),
    RUNTIME: (8, 16),
    DRIVER: (8, 16),
    SYNCHRONIZATION: (8, 16),
    OVERHEAD: (24, 32),
}
BUFFER_BYTES: Final = 1 << 20
NAME_BYTES_MAX: Final = 4096
_FORCED: Final = 1

_Requested = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
_Completed = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class CuptiError(Exception):
    """A call failed; str() names it and its number."""


class Catcher:
    """Catches everything between `start` and `stop`. One in a process, and no other tool beside it."""

    def __init__(self, library: str) -> None:
        self._cupti = ctypes.CDLL(library)
        self._requested, self._completed = _Requested(self._on_request), _Completed(self._on_complete)
        self._rooms: dict[int, Any] = {}  # address -> buffer that CUPTI has
        self.buffers: list[tuple[int, bytes]] = []  # thread that handed it over, what is in it
        self.names: dict[int, str] = {}  # of kernels, by pointer
        self.dropped = 0
        self.clock: list[tuple[int, int, int]] = []  # CLOCK_REALTIME before, CUPTI's, CLOCK_REALTIME after

    @property
    def version(self) -> int:
        """CuptiGetVersion."""
        number = c_uint32()
        self._call("cuptiGetVersion", byref(number))
        return number.value

    def start(self) -> None:
        """Raises CuptiError."""
        self._read_clock()
        self._call("cuptiActivityRegisterCallbacks", self._requested, self._completed)
        for kind in KINDS:
            self._call("cuptiActivityEnable", c_uint32(kind))

    def stop(self) -> None:
        """After it `buffers`, `names` and `dropped` are whole. Raises CuptiError."""
        for kind in KINDS:
            self._call("cuptiActivityDisable", c_uint32(kind))
        self._call("cuptiActivityFlushAll", c_uint32(_FORCED))
        self._read_clock()

    def _call(self, name: str, *arguments: Any) -> None:
        if error := getattr(self._cupti, name)(*arguments):
            raise CuptiError(f"{name} failed with CUPTI error {error}")

    def _read_clock(self) -> None:
        there = c_uint64()
        before = time.time_ns()
        self._call("cuptiGetTimestamp", byref(there))
        self.clock.append((before, there.value, time.time_ns()))

    def _on_request(self, buffer: Any, size: Any, records: Any) -> None:
        room = (c_uint8 * (BUFFER_BYTES + 8))()
        address = (ctypes.addressof(room) + 7) & ~7  # CUPTI wants 8 bytes
        self._rooms[address] = room
        buffer[0], size[0], records[0] = address, BUFFER_BYTES, 0

    def _on_complete(self, context: int | None, stream: int, address: int | None, size: int, valid: int) -> None:
        if address is None:
            return
        self.buffers.append((threading.get_native_id(), ctypes.string_at(address, valid)))
        for at in records_of(self._cupti, address, valid):
            if ctypes.c_uint32.from_address(at).value == KERNEL:
                self._name(ctypes.c_uint64.from_address(at + KERNEL_NAME_AT).value)
        lost = c_size_t()
        if self._cupti.cuptiActivityGetNumDroppedRecords(c_void_p(context), c_uint32(stream), byref(lost)) == 0:
            self.dropped += lost.value
        del self._rooms[address]

    def _name(self, pointer: int) -> None:
        if pointer and pointer not in self.names:
            text = ctypes.cast(pointer, ctypes.c_char_p).value or b""
            self.names[pointer] = text[:NAME_BYTES_MAX].decode("utf-8", "replace")


def records_of(cupti: Any, address: int, valid: int) -> list[int]:
    """Addresses of the records in a buffer, as this CUPTI steps through them."""
    found = []
    record = c_void_p()
    while cupti.cuptiActivityGetNextRecord(c_void_p(address), c_size_t(valid), byref(record)) == 0 and record.value:
        found.append(record.value)
    return found
