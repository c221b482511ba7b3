"""What `profctl run` adds to the start of a program: CPU time, user and system, of the whole chain of processes.

`PROFD_BENCH_PYTHON` names another interpreter that has profd: an editable install, as of a checkout, has a finder of
its own that each start of Python pays for, here twice.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Row

ROUNDS = 60
BAR_MS = 25.0


def rows(events: int) -> Iterator[Row]:
    """The rows of this case. In turns with the plain start, without a daemon."""
    del events
    python = Path(os.environ.get("PROFD_BENCH_PYTHON") or sys.executable)
    plain = [str(python), "-c", "pass"]
    attached = [str(python.with_name("profctl")), "run", "--", *plain]
    environment = {**os.environ, "PROFD_ADDRESS": "unix:/nonexistent/profd.sock"}
    taken: dict[str, list[float]] = {"plain": [], "attached": []}
    for _ in range(ROUNDS):
        for name, command in (("plain", plain), ("attached", attached)):
            taken[name].append(_cpu_ms(command, environment))
    alone, beyond = statistics.median(taken["plain"]), _beyond(taken)
    yield Row(
        case="starting",
        what="profctl run -- python -c pass, CPU beyond python -c pass",
        ours=f"{beyond:.1f} ms",
        floor=f"{alone:.1f} ms, the plain start",
        ratio=beyond / alone,
        bar=f"{BAR_MS:.0f} ms",
        met=beyond <= BAR_MS,
        note=f"{python}; profctl's own interpreter starts first, and becomes the command",
    )


def _beyond(taken: dict[str, list[float]]) -> float:
    return statistics.median(more - less for more, less in zip(taken["attached"], taken["plain"], strict=True))


def _cpu_ms(command: list[str], environment: dict[str, str]) -> float:
    """Of a process and all that it becomes."""
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # reaped here
    return (usage.ru_utime + usage.ru_stime) * 1000
