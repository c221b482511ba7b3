"""A worker: takes one job at a time over a socket until the socket ends.

Started as `python -m profd.workers.process SOCKET SETTINGS` by the pool: two descriptors.
Nothing here is imported by the daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from profd.errors import ProfdError
from profd.limits import LASTING_NICE
from profd.workers import code, confine, frames, jobs, landlock

# DuckDB asks for its own limits, and does not survive files that are there and cannot be opened.
_CGROUP: Final = "/proc/self/cgroup"
_CGROUP_LIMITS: Final = (
    *("/sys/fs/cgroup{}/memory.max", "/sys/fs/cgroup/memory{}/memory.limit_in_bytes", "/sys/fs/cgroup{}/cpu.max"),
    *("/sys/fs/cgroup/cpu{}/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu{}/cpu.cfs_period_us"),
)
PROGRESS_SECONDS: Final = 0.05  # between two progress frames of one job
TRACEBACK_CHARS_MAX: Final = 16_384


def main(argv: list[str]) -> int:
    """Confine, say `ready`, then serve jobs until the daemon closes the socket."""
    sock = socket.socket(fileno=int(argv[1]))
    with open(int(argv[2]), "rb") as told:
        settings: dict[str, Any] = json.load(told)
    memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # soon /proc is out of reach
    os.open(_CGROUP, os.O_PATH | os.O_CLOEXEC)  # for good: Landlock's rule is for this inode, which is kept so
    _tell(sock, *_confine(settings))
    known: dict[str, str] = settings["jobs"]
    _preload(known)
    while (request := frames.receive(sock)) is not None:
        message, fds = request
        answered = partial(_answer, sock, known, message, fds, memory)
        sock.sendall(_giving_way(answered) if message["lasts"] else answered())
    return 0


def _giving_way(function: Callable[[], bytes]) -> bytes:
    """The result of a function in a thread that weighs less, as do those that it starts.

    A nice value is a thread's own, and without rights nobody lowers one again: this thread takes its own with it.
    """
    with ThreadPoolExecutor(1, initializer=_weigh_less) as thread:
        return thread.submit(function).result()


def _weigh_less() -> None:
    with contextlib.suppress(OSError):
        os.nice(LASTING_NICE)


def _tell(sock: socket.socket, held: list[str], listener: int | None) -> None:
    """Send `ready`, with the listener. A process that kept the listener could let all its own calls through.

    The listener therefore goes with the first byte, and the rest says that this process has it no more.
    """
    fds = [] if listener is None else [listener]
    frame = frames.encode({"ready": held}, len(fds))
    sock.sendmsg([frame[:1]], frames.rights(fds))
    for fd in fds:
        os.close(fd)
    sock.sendall(frame[1:])


def _confine(settings: dict[str, Any]) -> tuple[list[str], int | None]:
    """Give up the rights that a worker does not need. Returns the words that hold now, and the listener."""
    confine.die_with_parent(settings["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    confine.lower(settings["memory_bytes"])
    held = []
    if settings["uid"] is not None:
        confine.become(settings["uid"], settings["gid"])
        held.append(f"uid {settings['uid']}")
        # The kernel forgets the death signal when the identity changes.
        confine.die_with_parent(settings["parent"])
    held += confine.drop_privileges()
    held += landlock.restrict(
        [*code.places(settings["gate"]), _CGROUP, *_limits(), *settings["read"]], settings["change"]
    )
    allowed, listener = confine.allow_system_calls()
    return held + allowed, listener


def _limits() -> Iterator[str]:
    with open(_CGROUP, encoding="utf-8", errors="surrogateescape") as file:
        own = {line.rstrip("\n").split(":", 2)[-1] for line in file}
    for path in sorted({"" if path == "/" else path for path in own}):
        yield from (form.format(path) for form in _CGROUP_LIMITS)


def _preload(known: dict[str, str]) -> None:
    """Import what jobs need, so that the first one does not pay for it (numpy and pyarrow: 0.3 s)."""
    for name in known:
        with contextlib.suppress(Exception):  # the job itself reports it
            jobs.find(name, known)
    with contextlib.suppress(Exception):
        _start_arrows_thread()


def _start_arrows_thread() -> None:
    """Arrow keeps the thread that decodes columns. Where a job that gives way had it started, it would stay so."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    empty = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [0], "b": [0]}), empty)
    pq.ParquetFile(pa.BufferReader(empty.getvalue())).read(use_threads=True)


def _answer(sock: socket.socket, known: dict[str, str], message: dict[str, Any], fds: list[int], memory: int) -> bytes:
    with _closing(fds):
        try:
            job = jobs.find(message["job"], known)
            result = job(message["args"], fds, _reporter(sock))
            answer: dict[str, Any] = {"result": result}
        except ProfdError as error:
            answer = {"error": _described(error)}
        except MemoryError:
            answer = {"error": {"type": "JobFailed", "message": "it needed more memory than a worker may use"}}
            answer["exhausted"] = True
        except BrokenPipeError:
            answer = {"error": {"type": "JobFailed", "message": "nobody reads its answer any more"}}
        except Exception as error:
            answer = {"error": {"type": "JobFailed", "message": f"{type(error).__name__}: {error}"}}
            answer["traceback"] = traceback.format_exc()[-TRACEBACK_CHARS_MAX:]
    spent = {"rss_bytes": _rss_bytes(memory), "cpu_seconds": time.process_time()}
    try:
        return frames.encode({**answer, **spent}, most=frames.RESULT_BYTES_MAX)
    except frames.FrameError as error:
        why = f"its result cannot be sent: {error}"
        return frames.encode({"error": {"type": "JobFailed", "message": why}, **spent})


def _described(error: ProfdError) -> dict[str, Any]:
    """The nearest type that the daemon knows, and the sentence."""
    known = next(kind for kind in type(error).__mro__ if kind.__module__ == "profd.errors")
    return {"type": known.__name__, "message": str(error), "offset": getattr(error, "offset", -1)}


def _reporter(sock: socket.socket) -> jobs.Progress:
    last = 0.0

    def report(what: str, share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_SECONDS:
            last = now
            sock.sendall(frames.encode({"progress": [what[:200], float(share)]}))

    return report


@contextlib.contextmanager
def _closing(fds: list[int]) -> Iterator[None]:
    """Close what the job left open, and only that: its numbers may have been used again."""
    before = {fd: _inode(fd) for fd in fds}
    try:
        yield
    finally:
        for fd, inode in before.items():
            if _inode(fd) == inode:
                os.close(fd)


def _inode(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _rss_bytes(statm: int) -> int:
    return int(os.pread(statm, 256, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(0)  # the daemon closed its end; there is nobody to tell
