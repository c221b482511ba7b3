"""The question `ranks` of a job of many ranks, whose traces are made once."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from profd.answers.ranks.comm import comm_of_capture
from profd.answers.ranks.critical import critical_of_capture
from profd.answers.ranks.ranks import ranks_of_capture
from profd.query.captured import Captured

from tests.support.importing import import_trace
from tests.support.simulated_job import Plan, files

LATE = 17


def fill(root: str, ranks: int) -> int:
    """Store a trace of 100,000 events of each rank; events of all."""
    folder = Path(root)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # A step has its own row, three for each operator and for its collective: 1,000.
    plan = Plan(ranks=ranks, steps=100, device=True, operators=332, late={LATE: 800_000})
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return sum(pool.map(partial(_store, folder), files(folder, plan)))


def _store(folder: Path, file: Path) -> int:
    events: int = import_trace(file, folder / file.stem, trace=file.stem, capture="c0123456789ab")["events"]
    file.unlink()
    return events


def costs(root: str, traces: int) -> dict[str, float]:
    """Nanoseconds of CPU an event of questions about the first traces, the second time: the first one imports."""
    capture = Captured(sorted(Path(root).iterdir())[:traces])
    asked: dict[str, Callable[[Captured], Any]] = {
        "ranks": ranks_of_capture,
        "comm": comm_of_capture,
        "critical": critical_of_capture,
    }
    events = sum(member.events or 0 for member in capture.members)
    return {name: min(_cpu(question, capture) for _ in range(2)) * 1e9 / events for name, question in asked.items()}


def _cpu(question: Callable[[Captured], Any], capture: Captured) -> float:
    began = time.process_time()
    question(capture)
    return time.process_time() - began


def ranks(root: str) -> dict[str, Any]:
    """Seconds by the clock and of CPU, and who is named."""
    began, cpu = time.perf_counter(), time.process_time()
    answer = ranks_of_capture(Captured(sorted(Path(root).iterdir())))
    took = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return {**took, "named": [one["rank"] for one in answer["stragglers"]]}
