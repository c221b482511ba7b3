"""`profctl where` of many processes: time, and CPU time of what the daemon starts for it, beside bare py-spy."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from profd.sources.pyspy import tool

from bench.measure import Row
from tests.support.daemon import RunningDaemon, running_daemon

PROCESSES = 64
LOOKS = 5
BAR_SECONDS = 2.5
REFILL_SECONDS = 7.0  # of the share of looks (limits.STACKS_PER_SECOND)
LOOP = "import time; print('ready', flush=True); time.sleep(3600)"
PROFCTL = str(Path(sys.executable).with_name("profctl"))


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    program = tool.find()
    if program is None:
        return
    jobs = [subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE) for _ in range(PROCESSES)]
    try:
        for job in jobs:
            assert job.stdout is not None
            job.stdout.readline()
        pids = [str(job.pid) for job in jobs]
        with running_daemon(user=os.geteuid() != 0) as daemon:
            yield _looks(daemon, program, pids)
    finally:
        for job in jobs:
            job.kill()
            job.communicate()


def _looks(daemon: RunningDaemon, program: Path, pids: list[str]) -> Row:
    found = []
    for _ in range(LOOKS):
        found.append(_look(daemon, pids))
        time.sleep(REFILL_SECONDS)
    seconds, cpu_seconds = (statistics.median(column) for column in zip(*found, strict=True))
    bare = statistics.median(_bare(program, pid) for pid in pids)
    return Row(
        "where",
        f"`profctl where` of {PROCESSES} processes",
        f"{seconds:.2f} s",
        bar=f"<= {BAR_SECONDS} s",
        met=seconds <= BAR_SECONDS,
        note=f"CPU time of the daemon's children {cpu_seconds / PROCESSES * 1e3:.1f} ms a process; "
        f"of py-spy alone {bare * 1e3:.1f} ms",
    )


def _look(daemon: RunningDaemon, pids: list[str]) -> tuple[float, float]:
    """Seconds of the command, and CPU seconds of the daemon's children that have ended meanwhile."""
    words = [word for pid in pids for word in ("--pid", pid)]
    before, began = _children(daemon.process.pid), time.perf_counter()
    subprocess.run([PROFCTL, "where", *words], env=daemon.environ, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, _children(daemon.process.pid) - before


def _children(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _bare(program: Path, pid: str) -> float:
    """CPU seconds of py-spy as the daemon asks it, with nothing around it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = ["dump", "--pid", pid, "--json", "--full-filenames", "--nonblocking"]
    subprocess.run([str(program), *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
