"""The question `ranks` of a job of many ranks, whose traces are made once."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

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


def ranks(root: str) -> dict[str, Any]:
    """Seconds by the clock and of CPU, and who is named."""
    began, cpu = time.perf_counter(), time.process_time()
    answer = ranks_of_capture(Captured(sorted(Path(root).iterdir())))
    took = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return {**took, "named": [one["rank"] for one in answer["stragglers"]]}
