"""Plain Python programs in processes of their own, to be looked at from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from profd.sources.pyspy import recording, tool
from profd.sources.pyspy.permission import Rights
from profd.targets import procfs
from profd.targets.process import Process
from profd.targets.table import ProcessTable

from tests.support.waiting import until


def _may_sample() -> bool:
    rights = Rights.mine()
    return rights.scope < 3 if rights.capable else rights.scope == 0


needs_ptrace = pytest.mark.skipif(
    not _may_sample(), reason="kernel.yama.ptrace_scope forbids sampling without CAP_SYS_PTRACE"
)

# A window that is long enough for a sampler to have its turn on a busy host: one without a turn fails, and says so.
SAMPLED_NS: Final = 3_000_000_000
SAMPLED: Final = f"{SAMPLED_NS // 1_000_000_000}s"

# No generator, here and in the next one: while one is resumed its frame leads to no other, and a look that pauses
# nobody ends there (8 of 310).
SPIN = """
import sys

def inner(n):
    for i in range(n): i * i

def outer():
    print("ready", flush=True)
    while True:
        inner(200)

outer()
"""

TWO_THREADS = """
import threading

def busy():
    print("ready", flush=True)
    while True:
        sum(range(200))

def waiting(started, event):
    started.set()
    event.wait()

started = threading.Event()
threading.Thread(target=waiting, args=(started, threading.Event()), name="waiter", daemon=True).start()
started.wait()
busy()
"""

# Two threads wait for the end of a third.
JOINING = """
import threading, time

class Waiter(threading.Thread):
    def run(self):
        holder.join()

holder = threading.Thread(target=time.sleep, args=(600,), name="holder", daemon=True)
holder.start()
Waiter(name="waiter", daemon=True).start()
print("ready", flush=True)
holder.join()
"""

# Counts up in a file of 8 bytes, so that others can see that it goes on.
COUNTER = """
import mmap, sys

with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 8)
count = 0
print("ready", flush=True)
while True:
    count += 1
    memory[:8] = count.to_bytes(8, "little")
"""

# Ends when its standard input does.
UNTIL_TOLD = """
import sys, threading

def busy():
    while True:
        sum(i * i for i in range(200))

threading.Thread(target=busy, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
import os
os._exit(0)
"""


@contextlib.contextmanager
def ready(*command: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that has printed `ready`; killed at the end. Its stdin is a pipe. `options`: of Popen."""
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options)
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == b"ready\n"
        yield job
    finally:
        job.kill()
        job.communicate()


@contextlib.contextmanager
def running(program: str, *arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The same, of our interpreter."""
    with ready(sys.executable, "-c", program, *arguments, env={**os.environ, **(env or {})}) as job:
        yield job


def let_scripts_play_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script cannot be a sampler: it is unconfined. Nor would it be started where profd's own reader can read."""
    monkeypatch.setattr(recording, "readers", lambda sampling: (recording.Reader.PY_SPY,))
    alone = tool._alone
    script = str(Path(__file__).with_name("unconfined.py"))
    monkeypatch.setattr(
        tool, "_alone", lambda module: (sys.executable, "-I", "-S", script) if module == "launch" else alone(module)
    )


def seen(pid: int) -> Process:
    """The process as the daemon sees it, whole. On a busy host a look may end before the process had its turn to
    answer, above all on an event loop, which waits for 20 ms; and then the daemon asks again, too.
    """

    def whole() -> Process | None:
        missed = procfs.missed()
        found = ProcessTable().get(pid)
        return found if procfs.missed() == missed else None

    found = until(whole, f"process {pid} answers")
    assert found is not None
    return found


def process_of(job: subprocess.Popen[bytes]) -> Process:
    """The job as the daemon sees it."""
    return seen(job.pid)


def counter_file(folder: Path) -> Path:
    """An empty count for COUNTER."""
    path = folder / "count"
    path.write_bytes(bytes(8))
    return path


def count_in(path: Path) -> int:
    """What COUNTER has counted."""
    return int.from_bytes(path.read_bytes(), "little")
