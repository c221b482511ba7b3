"""Which machine a result is from, and whether it has a GPU at all."""

from __future__ import annotations

import ctypes
import datetime
import importlib.metadata
import os
import platform
from typing import Any

PACKAGES = ("torch", "cupti-python", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12", "nvidia-ml-py", "profd")


def no_gpu(library: str = "libcuda.so.1") -> str:
    """Why nothing can be measured here, as a sentence; empty where CUDA has a device."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return f"This machine has no NVIDIA driver ({library} cannot be loaded): nothing was measured."
    if error := cuda.cuInit(0):
        return f"CUDA cannot be initialised on this machine (error {error}): nothing was measured."
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return "CUDA sees no GPU on this machine (CUDA_VISIBLE_DEVICES?): nothing was measured."
    return ""


def no_torch_cuda() -> str:
    """Why no torch loop can run on a GPU here; empty where one can."""
    if why := no_gpu():
        return why
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed: nothing was measured."
    if not torch.cuda.is_available():
        return f"This PyTorch ({torch.__version__}) cannot use the GPU: nothing was measured."
    return ""


def describe() -> dict[str, Any]:
    """Driver, GPUs and versions, without a name of host or user."""
    from profd.gpu.nvml import Nvml

    nvml = Nvml()
    reading = nvml.read()
    nvml.close()
    return {
        "driver": reading.driver or None,
        "gpus": [gpu.name for gpu in reading.gpus if gpu.mig is None],
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
