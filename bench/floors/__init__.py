"""Bare programs that do the least that the job needs: how far are we from them?"""

from __future__ import annotations

import subprocess
from pathlib import Path

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
