"""A loop of launches in C, pinned to one core: its time a launch varies far less than that of a loop of PyTorch's."""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int, c_uint, c_void_p
from pathlib import Path

from bench.gpu import device
from bench.gpu.driver import Driver
from bench.gpu.program import ADD, PTX

BATCH = device.of(500, rehearsed=20)  # launches in a row: fewer than a stream holds, so that none waits for the GPU
BATCHES = device.of(12, rehearsed=2)  # of a block
_ELEMENTS = 32  # the kernel does next to nothing

_SOURCE = """
#include <time.h>
typedef unsigned u;
typedef int (*launch)(void *, u, u, u, u, u, u, u, void *, void **, void **);
double seconds(launch call, void *kernel, void *stream, void **parameters, int count) {
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < count; i++)
    if (call(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, 0)) return -1;
  clock_gettime(CLOCK_MONOTONIC, &to);
  return (to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) * 1e-9;
}
"""


class Launches:
    """The primary context of the first GPU, and a loop. Raises DriverError, OSError, CalledProcessError."""

    def __init__(self) -> None:
        library = os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1")
        self.driver = Driver(library)
        self._launch = ctypes.cast(ctypes.CDLL(library).cuLaunchKernel, c_void_p)
        [self._kernel] = self.driver.function(PTX, ADD)
        self._stream = self.driver.stream()
        self._values = (self.driver.memory(4 * _ELEMENTS), c_uint(_ELEMENTS))
        pointers = [ctypes.cast(ctypes.byref(value), c_void_p) for value in self._values]
        self._parameters = (c_void_p * len(pointers))(*pointers)
        self._seconds = _compiled()
        self.cores = os.sched_getaffinity(0)

    def batch(self) -> float:
        """Seconds of one launch, without the GPU's."""
        took = self._seconds(self._launch, self._kernel, self._stream, self._parameters, c_int(BATCH))
        self.driver.synchronize()
        if took < 0:
            raise OSError("a launch failed")
        return float(took) / BATCH

    def block(self) -> float:
        """The median of some batches."""
        return statistics.median(self.batch() for _ in range(BATCHES))

    def once(self) -> None:
        """A batch whose time nobody asks for."""
        self.batch()

    def pin(self, core: int | None = None) -> None:
        """Bind the calling thread to a core, the last by default. Threads that it starts are bound, too."""
        os.sched_setaffinity(0, {max(self.cores) if core is None else core})

    @contextmanager
    def unpinned(self) -> Iterator[None]:
        """Whatever is started within may go anywhere."""
        os.sched_setaffinity(0, self.cores)
        try:
            yield
        finally:
            self.pin()


def _compiled() -> ctypes._NamedFuncPointer:
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "loop.c", Path(folder) / "loop.so"
        source.write_text(_SOURCE)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        seconds = ctypes.CDLL(str(library)).seconds
    seconds.restype = ctypes.c_double
    return seconds
