"""The least of CUDA's driver API, through ctypes: programs for a GPU need no toolkit and no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any


class DriverError(Exception):
    """A call of the driver failed; str() names it and its error."""


class Driver:
    """The primary context of the first GPU. Raises DriverError, OSError without a driver."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._cuda = ctypes.CDLL(library)
        self.call("cuInit", 0)
        device, context = c_int(), c_void_p()
        self.call("cuDeviceGet", byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._context = context
        self.use()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises DriverError for anything but success."""
        error = getattr(self._cuda, name)(*arguments)
        if error:
            raise DriverError(f"{name} failed with CUDA error {error}")

    def use(self) -> None:
        """Make the context this thread's."""
        self.call("cuCtxSetCurrent", self._context)

    @property
    def version(self) -> str:
        """Of CUDA that the driver knows: "13.0"."""
        number = c_int()
        self.call("cuDriverGetVersion", byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def function(self, ptx: str, *names: str) -> list[c_void_p]:
        """Kernels of a module in PTX, which the driver compiles for the GPU at hand."""
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), c_char_p(ptx.encode("ascii")))
        found = []
        for name in names:
            kernel = c_void_p()
            self.call("cuModuleGetFunction", byref(kernel), module, c_char_p(name.encode("ascii")))
            found.append(kernel)
        return found

    def memory(self, size: int) -> c_uint64:
        """Device memory, until the process ends."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address

    def stream(self) -> c_void_p:
        """A stream of its own, which waits for no other."""
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint(1))
        return stream

    def launch(self, kernel: c_void_p, blocks: int, threads: int, stream: c_void_p, *arguments: Any) -> None:
        """Launch with these ctypes values."""
        pointers = (c_void_p * len(arguments))(*(ctypes.cast(byref(one), c_void_p) for one in arguments))
        size = (*(c_uint(number) for number in (blocks, 1, 1, threads, 1, 1)), c_uint(0))
        self.call("cuLaunchKernel", kernel, *size, stream, pointers, None)

    def synchronize(self) -> None:
        """Wait for everything."""
        self.call("cuCtxSynchronize")

    @contextmanager
    def captured(self, stream: c_void_p) -> Iterator[c_void_p]:
        """What is launched on the stream becomes an executable graph, which is there at the end."""
        graph, executable = c_void_p(), c_void_p()
        self.call("cuStreamBeginCapture_v2", stream, c_int(2))  # relaxed
        yield executable
        self.call("cuStreamEndCapture", stream, byref(graph))
        self.call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
