"""The trace engine as a worker runs it."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from profd.workers.jobs import JOBS, find

# A worker imports what its jobs need before the first one comes (workers/process.py).
for _name in JOBS:
    find(_name)


def _quiet(what: str, share: float) -> None:
    """Progress that nobody follows."""


def nothing() -> None:
    """What a process takes that has imported all this."""


def store(path: str, out: str, kind: str = "chrome") -> dict[str, Any]:
    """A trace file to a stored trace in directory `out`, which is made anew."""
    shutil.rmtree(out, ignore_errors=True)
    Path(out).mkdir(parents=True)
    with Path(path).open("rb") as file:
        files = [{"format": kind, "label": Path(path).name, "fd": 0}]
        meta = {"trace": "bench", "source": "import", "title": path}
        return find("store_trace")({"files": files, "staging": out, "meta": meta}, [os.dup(file.fileno())], _quiet)


def query(job: str, trace_dir: str, repeat: int, **arguments: Any) -> list[float]:
    """Seconds of each of several runs of one query in a warm worker."""
    function, taken = find(job), []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        with tempfile.TemporaryFile() as out:
            function({"trace_dir": trace_dir, **arguments}, [os.dup(out.fileno())], _quiet)
            out.seek(0, io.SEEK_END)
        taken.append(time.perf_counter() - begin)
    return taken[1:]  # the first imports what it needs
