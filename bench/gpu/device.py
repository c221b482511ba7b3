"""Where the torch loops run: on the GPU; in a rehearsal on the CPU, beside launches that a stand-in of CUPTI records.

A rehearsal shows that the scripts run from end to end on a machine without a GPU, and nothing else.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import ROOT

VARIABLE = "PROFD_BENCH_REHEARSAL"
FOLDER = os.environ.get(VARIABLE, "")  # of a rehearsal: the stand-ins, and what is recorded for tests otherwise
REHEARSAL = bool(FOLDER)
NAME = "cpu" if REHEARSAL else "cuda"
LAUNCHES = 3  # of a rehearsed step
_SUPPORT = ROOT / "tests" / "support"
_STAND_INS = {"libcupti.so.13": "fake_cupti.c", "libcuda.so.1": "fake_cuda.c"}


class NoStandIns(Exception):
    """They cannot be built here; str() says why."""


def rehearse(folder: Path) -> dict[str, str]:
    """Build the stand-ins there. Returns the environment of processes that use them. Raises NoStandIns."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoStandIns("no C compiler (cc) to build the stand-ins for CUDA and CUPTI")
    for library, source in _STAND_INS.items():
        command = [compiler, "-shared", "-fPIC", "-pthread", f"-Wl,-soname,{library}", "-o", str(folder / library)]
        done = subprocess.run([*command, str(_SUPPORT / source), "-ldl"], capture_output=True, text=True)
        if done.returncode:
            raise NoStandIns(f"{source} cannot be compiled: {done.stderr[-300:]}")
    about = folder / "cupti_python.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cupti-python\nVersion: 13.4.0\n")
    return {
        VARIABLE: str(folder),
        "PYTHONPATH": f"{folder}:{_SUPPORT / 'fake_cupti_python'}",
        "LD_LIBRARY_PATH": str(folder),
        "PROFD_CUPTI_LIBRARY": str(folder / "libcupti.so.13"),
    }


def of(measured: int, rehearsed: int) -> int:
    """How many: rehearsals are short."""
    return rehearsed if REHEARSAL else measured


def synchronize() -> None:
    """Until the GPU has done everything."""
    import torch

    if not REHEARSAL:
        torch.cuda.synchronize()


def launching(step: Callable[[], Any]) -> Callable[[], None]:
    """A step that uses CUDA; in a rehearsal the stand-in of its driver is told of launches."""
    if not REHEARSAL:
        return step
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    cupti = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])

    def rehearsed() -> None:
        step()
        cupti.fake_launch(b"rehearsed", 7, LAUNCHES)

    return rehearsed


def profiled() -> list[Any]:
    """What torch.profiler is to record of the device alone."""
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CPU if REHEARSAL else ProfilerActivity.CUDA]
