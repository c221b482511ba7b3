"""`where` names the thread that holds the lock another waits for, where the lock says it, and nobody else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from profd.sources.pyspy.where import stacks

from tests.support.python_jobs import needs_ptrace, process_of, running
from tests.support.waiting import comes, until

pytestmark = [pytest.mark.slow, needs_ptrace]

LOCKED = """
import threading

lock, locked = threading.{kind}(), threading.Event()

def keep():
    with lock:
        locked.set()
        threading.Event().wait()

def want():
    with lock:
        pass

def want_a_while():
    lock.acquire(timeout=600)

threading.Thread(target=keep, name="keeper", daemon=True).start()
locked.wait()
for work in (want, want_a_while):
    threading.Thread(target=work, name=work.__name__, daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
# glibc's own lock, as a library has it: it is taken without the GIL.
MUTEX = """
import ctypes, threading

libc = ctypes.CDLL(None)
mutex, locked = ctypes.create_string_buffer(64), threading.Event()

def keep():
    libc.pthread_mutex_lock(mutex)
    locked.set()
    threading.Event().wait()

def want():
    libc.pthread_mutex_lock(mutex)

threading.Thread(target=keep, name="keeper", daemon=True).start()
locked.wait()
threading.Thread(target=want, name="want", daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


def asleep(pid: int, threads: int) -> bool:
    """So many threads wait in the kernel, as they do for locks."""
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return states == ["S"] * threads


async def holders(job: subprocess.Popen[bytes], threads: int) -> dict[str, str]:
    """Thread -> the one that holds the lock it waits for, both by their names; "" for none."""
    until(lambda: asleep(job.pid, threads), "all threads wait")
    seen = await stacks(process_of(job))
    names = {thread.thread: thread.name for thread in seen}
    return {thread.name: names.get(thread.lock_holder, "") for thread in seen}


async def test_a_reentrant_lock() -> None:
    with running(LOCKED.format(kind="RLock")) as job:
        assert await holders(job, 4) == {"MainThread": "", "keeper": "", "want": "keeper", "want_a_while": "keeper"}


async def test_a_mutex_of_a_library() -> None:
    with running(MUTEX) as job:
        assert await holders(job, 3) == {"MainThread": "", "keeper": "", "want": "keeper"}


async def test_nothing_is_said_of_a_lock_that_does_not_know_its_holder() -> None:
    with running(LOCKED.format(kind="Lock")) as job:
        assert set((await holders(job, 4)).values()) == {""}


BUSY = """
import threading
def work():
    total = 0
    while True: total += 1
for number in range(3):
    threading.Thread(target=work, name=f"work {number}", daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""


async def test_those_that_wait_for_the_gil_say_so() -> None:
    with running(BUSY) as job:
        seen: dict[str, bool] = {}

        async def one_waits() -> bool | None:
            seen.update({thread.name: thread.waits_gil for thread in await stacks(process_of(job))})
            # Which waits for an Event, once it has had the GIL again for that.
            return (any(seen.values()) and not seen["MainThread"]) or None

        await comes(one_waits)
