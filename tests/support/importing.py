"""A trace file through the real pipeline, in this process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from profd.pipeline import store_trace


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
