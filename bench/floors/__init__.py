"""Bare programs that do the least that the job needs: how far are we from them?"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from bench.measure import SCRATCH

HERE = Path(__file__).resolve().parent


def run(name: str, *arguments: str) -> list[float]:
    """Build a floor program if needed and run it; the numbers that it prints."""
    SCRATCH.mkdir(exist_ok=True)
    source, program = HERE / f"{name}.cpp", SCRATCH / f"floor-{name}"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["c++", "-O3", "-march=native", "-std=c++20", "-o", program, source], check=True)
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def extension(name: str) -> Any:
    """Build `NAME.cpp` as a module `floor_NAME` of this Python if needed, and import it."""
    SCRATCH.mkdir(exist_ok=True)
    source = HERE / f"{name}.cpp"
    built = SCRATCH / f"floor_{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        include = sysconfig.get_path("include")
        command = ["c++", "-O3", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}"]
        subprocess.run([*command, "-o", built, source], check=True)
    spec = importlib.util.spec_from_file_location(f"floor_{name}", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def torch_library(name: str) -> ctypes.CDLL:
    """Build `NAME.cpp` for the torch of this Python, with the flags of the observer, and load it."""
    from profclient.torch import build

    found = build.ask(sys.executable)
    SCRATCH.mkdir(exist_ok=True)
    source, library = HERE / f"{name}.cpp", SCRATCH / f"floor-{name}-{found.key.torch}.so"
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(build.command(found, build.compiler(), library, source), check=True)
    return ctypes.CDLL(str(library))
