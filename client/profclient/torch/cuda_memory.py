"""Allocations on CUDA devices: the part of the observer that a torch with CUDA has (native/torch/cuda_memory.cpp).

torch's allocator knows no way to detach a listener: it is attached at the first capture that wants it, once CUDA runs,
and told where to write, or nothing. It never ran on a GPU.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from profclient.torch.builds import Build

NO_PART = "the build has no part for CUDA, make it again where its headers are: profctl torch build"

_library: Any = None  # loaded and attached, for ever


def start(build: Build, recorder: int) -> str:
    """Record them; a sentence where they cannot be, empty where they are or there is no CUDA."""
    global _library
    torch = sys.modules["torch"]
    if torch.version.cuda is None:
        return ""
    if not build.cuda_sha256:
        return build.without_cuda or NO_PART
    if not torch.cuda.is_initialized():
        return "CUDA had not been initialized when the capture began"
    if _library is None:
        library = _load(build)
        if library.profd_torch_cuda_build().decode(errors="replace") != build.key.text:
            return f"{build.cuda_library} is of another build: profctl torch build"
        if (said := library.profd_torch_cuda_attach()) is not None:
            return f"torch's allocator cannot be followed: {said.decode(errors='replace').partition(chr(10))[0]}"
        _library = library
    _library.profd_torch_cuda_start(recorder)
    return ""


def stop() -> None:
    """Record none any more."""
    if _library is not None:
        _library.profd_torch_cuda_stop()


def _load(build: Build) -> Any:
    library = ctypes.CDLL(str(build.cuda_library))
    for name in ("build", "attach"):
        getattr(library, f"profd_torch_cuda_{name}").restype = ctypes.c_char_p
    library.profd_torch_cuda_start.argtypes = [ctypes.c_void_p]
    library.profd_torch_cuda_start.restype = None
    library.profd_torch_cuda_stop.restype = None
    return library
