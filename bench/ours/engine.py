"""The trace engine as a worker runs it."""

from __future__ import annotations

import io
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profd.questions.jobs import JOBS, find

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
    return _runs(time.perf_counter, job, trace_dir, repeat, arguments)


def query_cpu(job: str, trace_dir: str, repeat: int, **arguments: Any) -> list[float]:
    """The same in CPU seconds of all threads."""
    return _runs(time.process_time, job, trace_dir, repeat, arguments)


def costs(path: str, out: str, repeat: int, kind: str = "chrome") -> dict[str, Any]:
    """CPU seconds of storing a file and of `top` on it in a warm worker, medians; its events."""
    stored, events = [], 0
    for _ in range(repeat):
        begin = time.process_time()
        events = store(path, out, kind)["events"]
        stored.append(time.process_time() - begin)
    top = statistics.median(query_cpu("top", out, repeat))
    return {"store": statistics.median(stored), "top": top, "events": events}


def _runs(clock: Callable[[], float], job: str, trace_dir: str, repeat: int, arguments: dict[str, Any]) -> list[float]:
    function, taken = find(job), []
    for _ in range(repeat + 1):
        begin = clock()
        with tempfile.TemporaryFile() as out:
            function({"trace_dir": trace_dir, **arguments}, [os.dup(out.fileno())], _quiet)
            out.seek(0, io.SEEK_END)
        taken.append(clock() - begin)
    return taken[1:]  # the first imports what it needs
