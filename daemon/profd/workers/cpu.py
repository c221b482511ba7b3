"""The CPU time that a job may use, so that a small file which is dear to read does not hold a worker for long.

The daemon counts: a worker that was taken over could raise a limit of its own.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from profd.disk.copying import data_of
from profd.errors import Exhausted
from profd.limits import (
    DECODE_CPU_LOOK_SECONDS,
    DECODE_CPU_SECONDS_MIN,
    DECODE_CPU_SECONDS_PER_MIB,
    PICKUP_PIECES_MAX,
    MiB,
)
from profd.workers.watched import watched

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_UTIME: Final = 11  # in /proc/PID/stat, behind the name; stime is the next


def allowed(job: str, fds: Sequence[int]) -> float | None:
    """Seconds of CPU for a job with these inputs; None where only its time is bounded."""
    if job != "store_trace":
        return None
    data = sum(end - begin for fd in fds for begin, end in _data(fd))
    return DECODE_CPU_SECONDS_MIN + DECODE_CPU_SECONDS_PER_MIB * data / MiB


def _data(fd: int) -> Iterator[tuple[int, int]]:
    """Bytes of a file without its holes, of which its owner can claim as many as they like."""
    position = os.lseek(fd, 0, os.SEEK_CUR)
    yield from itertools.islice(data_of(fd, os.fstat(fd).st_size), PICKUP_PIECES_MAX)
    os.lseek(fd, position, os.SEEK_SET)


async def within(seconds: float | None, pid: int, job: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The answer of this process's job. Raises the job's error, and Exhausted when the job uses more CPU time."""
    if seconds is None:
        return await job
    before = _used(pid)

    async def look() -> None:
        if _used(pid) - before > seconds:
            raise Exhausted(
                f"decoding it took more than {seconds:.0f} s of CPU, the most for a file of its size, and was "
                "ended: capture a shorter window, or import the file in parts"
            )

    return await watched(job, DECODE_CPU_LOOK_SECONDS, look)


def _used(pid: int) -> float:
    """CPU seconds of a process with all its threads; none of one that has gone."""
    try:
        fields = Path("/proc", str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[_UTIME]) + int(fields[_UTIME + 1])) / _TICKS
