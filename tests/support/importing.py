"""A trace file through the real pipeline, in this process."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from profd.importing.pipeline import store_trace
from profd.query import Trace, open_trace


def import_trace(path: Path, directory: Path, kind: str = "chrome", **meta: Any) -> dict[str, Any]:
    """Store a trace of some format in a new directory; what the job says of it."""
    directory.mkdir(parents=True)
    file = os.open(path, os.O_RDONLY)
    try:
        files = [{"format": kind, "label": path.name, "fd": 0}]
        return store_trace(
            {"files": files, "staging": str(directory), "meta": {"trace": "t1", "source": "import", **meta}},
            [file],
            lambda what, share: None,
        )
    finally:
        os.close(file)


def real_trace(name: str, trace_data: Path, folder: Path) -> tuple[Trace, list[dict[str, Any]]]:
    """A trace of somebody's GPU: as we store it, and the records of its file with numbers as they stand there."""
    file = trace_data / f"{name}.json.gz"
    if not file.exists():
        pytest.skip(f"no {file}")
    import_trace(file, folder / "stored")
    text = gzip.decompress(file.read_bytes()).decode("utf-8", "replace")
    return open_trace(folder / "stored"), json.loads(text, strict=False, parse_float=str)["traceEvents"]
