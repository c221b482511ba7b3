"""HolisticTraceAnalysis: load a trace into its data frame, and build its call graph."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any


def load(path: str) -> int:
    """Parse one rank's file; the number of rows."""
    return len(_parsed(path).get_trace(0))


def load_and_graph(path: str) -> int:
    """Parse one rank's file and build its call graph; the number of call stacks."""
    from hta.common.call_stack import CallGraph

    return len(CallGraph(_parsed(path)).call_stacks)


def _parsed(path: str) -> Any:
    from hta.common.trace import Trace

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "rank0.json")
        trace = Trace(trace_files={0: "rank0.json"}, trace_dir=folder)
        trace.parse_traces(use_multiprocessing=False)
        return trace
