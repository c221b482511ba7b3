"""HolisticTraceAnalysis: load a trace into its data frame (no call graph)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path


def load(path: str) -> int:
    """Parse one rank's file; the number of rows."""
    from hta.common.trace import Trace

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "rank0.json")
        trace = Trace(trace_files={0: "rank0.json"}, trace_dir=folder)
        trace.parse_traces(use_multiprocessing=False)
        return len(trace.get_trace(0))
