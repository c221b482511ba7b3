"""The observer, loaded: PyTorch's operators straight into the recorder's queues (native/torch)."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from profclient import _recorder
from profclient.torch import builds, cuda_memory

_INPUTS, _TENSOR_IDS, _STACKS, _MODULES, _MOBILE, _TIMES = 1, 2, 4, 8, 16, 32
_CAPSULE: Final = b"profclient._recorder._api"


class Observer:
    """One per process; what is loaded stays loaded. The calls run without the GIL."""

    def __init__(self, build: builds.Build) -> None:
        self.build = build
        self.running = False
        self._library = _load(build)
        self._api = _api_address()

    def start(self, wanted: int) -> None:
        """Record ops from now on, in the recording that runs. Raises RuntimeError."""
        self._call(self._library.profd_torch_start, self._api, wanted)
        self.running = True

    def stop(self) -> None:
        """Take the callback away; ops that run now still get their ends. Raises RuntimeError."""
        self.running = False
        self._call(self._library.profd_torch_stop)

    def start_times(self) -> None:
        """Take device times of ops by CUDA events, too: before `start`. Raises RuntimeError: torch has none."""
        self._call(self._library.profd_torch_times_start, self._api)

    def stop_times(self) -> None:
        """Wait for the device and record the times; after `stop`, while the recording runs. Raises RuntimeError."""
        self._call(self._library.profd_torch_times_stop)

    def start_memory(self) -> str:
        """Record allocations and frees of tensors; why none on CUDA devices are, or empty.

        Raises RuntimeError: another allocator of CPU tensors has the say.
        """
        self._call(self._library.profd_torch_memory_start, self._api)
        return cuda_memory.start(self.build, self._api)

    def stop_memory(self) -> None:
        """Give torch its allocator back. Raises RuntimeError."""
        cuda_memory.stop()
        self._call(self._library.profd_torch_memory_stop)

    def start_profiler(self, shapes: bool, flops: bool, devices: bool) -> None:
        """Start torch's own profiler; keeps the GIL, so that nobody else starts one meanwhile. Raises RuntimeError."""
        holding = ctypes.PyDLL(None, handle=self._library._handle)
        function = holding.profd_torch_profiler_start
        function.restype = ctypes.c_char_p
        self._call(function, int(shapes), int(flops), int(devices))

    def stop_profiler(self, path: str) -> None:
        """Stop it and write what it recorded; takes seconds for a million events. Raises RuntimeError."""
        self._call(self._library.profd_torch_profiler_stop, os.fsencode(path))

    def start_nvtx(self, push: int, pop: int, sizes: bool) -> None:
        """Tell `void(const char *)` and `void()` at these addresses of each op. Raises RuntimeError."""
        self._call(self._library.profd_torch_nvtx_start, push, pop, int(sizes))

    def stop_nvtx(self) -> None:
        """No more. Raises RuntimeError."""
        self._call(self._library.profd_torch_nvtx_stop)

    @staticmethod
    def _call(function: Any, *arguments: object) -> None:
        said = function(*arguments)
        if said is not None:
            raise RuntimeError(f"the observer of PyTorch: {said.decode(errors='replace')}")


_found: builds.Build | None = None


def find() -> builds.Build | None:
    """The build for the torch that is imported; None where none was made. Raises builds.Unusable, OSError.

    One that was found is not looked for again: reading a file costs a job that holds the GIL a switch of it, 5 ms, and
    this is done when torch is imported and once more when a capture begins.
    """
    global _found
    if _found is None:
        _found = builds.find(builds.key_of(sys.modules["torch"]))
    return _found


def load() -> Observer | None:
    """The observer for the torch that is imported; None where none was built. Raises builds.Unusable, OSError."""
    build = find()
    return None if build is None else Observer(build)


def wanted(options: Mapping[str, str], *, times: bool = False) -> int:
    """The options of an ARM that the observer records besides names and times. `times`: those of the device, too."""
    bits = _TIMES if times else 0
    if "shapes" in options or "flops" in options:
        bits |= _INPUTS
    if "shapes" in options and "memory" in options:
        bits |= _TENSOR_IDS
    if "stacks" in options:
        bits |= _STACKS
    if "modules" in options:
        bits |= _MODULES
    if "torch.jit.mobile" in sys.modules:
        bits |= _MOBILE
    return bits


def _load(build: builds.Build) -> ctypes.CDLL:
    library = ctypes.CDLL(str(build.library))
    library.profd_torch_build.restype = ctypes.c_char_p
    library.profd_torch_start.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    library.profd_torch_start.restype = ctypes.c_char_p
    library.profd_torch_stop.restype = ctypes.c_char_p
    library.profd_torch_times_start.argtypes = [ctypes.c_void_p]
    library.profd_torch_times_start.restype = ctypes.c_char_p
    library.profd_torch_times_stop.restype = ctypes.c_char_p
    library.profd_torch_memory_start.argtypes = [ctypes.c_void_p]
    library.profd_torch_memory_start.restype = ctypes.c_char_p
    library.profd_torch_memory_stop.restype = ctypes.c_char_p
    library.profd_torch_nvtx_start.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    library.profd_torch_nvtx_start.restype = ctypes.c_char_p
    library.profd_torch_nvtx_stop.restype = ctypes.c_char_p
    library.profd_torch_profiler_stop.argtypes = [ctypes.c_char_p]
    library.profd_torch_profiler_stop.restype = ctypes.c_char_p
    said = library.profd_torch_build().decode(errors="replace")
    if said != build.key.text:
        raise builds.Unusable(f"{build.library} says it is for {said}: profctl torch build")
    return library


def _api_address() -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(_recorder._api, _CAPSULE))
