"""Inputs of the benches: generated once into .bench, the same for every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.measure import ROOT, SCRATCH


def trace(events: int) -> Path:
    """A generated Kineto trace of so many X events; its known truth lies beside it as .npz."""
    SCRATCH.mkdir(exist_ok=True)
    path = SCRATCH / f"generated-{events}.json"
    if not path.exists():
        partial = path.with_suffix(".part")
        command = [sys.executable, "bench/gen_trace.py", "--events", str(events), "--out", str(partial)]
        subprocess.run([*command, "--truth", str(path.with_suffix(".npz"))], cwd=ROOT, check=True)
        partial.rename(path)
    return path
