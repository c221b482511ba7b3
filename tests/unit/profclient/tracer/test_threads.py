"""Threads of every kind are traced: those that run at the start, later ones, those that C code makes."""

from __future__ import annotations

import _thread
import ctypes
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.arena_reader import OPEN_AT_START
from tests.support.tracing import Recording, name_of, tracing

DEADLINE_S = 60.0


def leaf() -> None:
    """What threads call."""


class Worker:
    """A thread that runs what it is told to, so that tests decide when."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.do(leaf)  # it is inside _run now
        self.tid = self._thread.native_id

    def _run(self) -> None:
        while work := self._work.get():
            work()
            self._done.put(None)

    def do(self, work: Callable[[], None]) -> None:
        self._work.put(work)
        self._done.get(timeout=DEADLINE_S)

    def end(self) -> None:
        self._work.put(None)
        self._thread.join(DEADLINE_S)


def _leaves(recording: Recording, tid: int | None) -> int:
    return sum(event.name == name_of(leaf.__code__) for event in recording.calls(tid))


def test_threads_that_run_at_the_start() -> None:
    workers = [Worker() for _ in range(3)]
    with tracing() as recording:
        for number, worker in enumerate(workers):
            for _ in range(number + 1):
                worker.do(leaf)
    for worker in workers:
        worker.end()
    assert [_leaves(recording, worker.tid) for worker in workers] == [1, 2, 3]
    for worker in workers:
        opened = [event.name for event in recording.calls(worker.tid) if event.flags & OPEN_AT_START]
        assert name_of(Worker._run.__code__) in opened
        assert opened[0].endswith(": _bootstrap")


def test_threads_that_start_later_and_end_sooner() -> None:
    tids = []

    def run() -> None:
        tids.append(threading.get_native_id())
        leaf()

    with tracing() as recording:
        for _ in range(50):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join(DEADLINE_S)
    counts = {tid: _leaves(recording, tid) for tid in set(tids)}
    assert sum(counts.values()) == 50
    assert recording.statistics["resynchronised"] == 0


def test_a_thread_that_starts_a_thread() -> None:
    with tracing() as recording:
        inner: list[int] = []

        def outer() -> None:
            thread = threading.Thread(target=lambda: (leaf(), inner.append(threading.get_native_id())))
            thread.start()
            thread.join(DEADLINE_S)

        thread = threading.Thread(target=outer)
        thread.start()
        thread.join(DEADLINE_S)
    assert _leaves(recording, inner[0]) == 1


@pytest.mark.parametrize("way", ["start_new_thread", "start_new", "through C code"])
def test_a_thread_without_threading_from_its_first_call(way: str) -> None:
    """It is found before it runs, however it was started."""
    ended = threading.Lock()
    tids: list[int] = []

    def run() -> None:
        leaf()
        tids.append(threading.get_native_id())
        ended.release()

    ended.acquire()
    with tracing() as recording:
        if way == "through C code":
            list(map(_thread.start_new_thread, [run], [()]))
        else:
            getattr(_thread, way)(run, ())
        assert ended.acquire(timeout=DEADLINE_S)
    calls = recording.calls(tids[0])
    assert [event.name for event in calls[:2]] == [name_of(run.__code__), name_of(leaf.__code__)]
    assert not any(event.flags & OPEN_AT_START for event in calls)


def test_a_thread_that_c_code_made() -> None:
    """On 3.11 it is found while others record."""
    traced, stop = threading.Event(), threading.Event()
    tids: list[int] = []

    def body(_: Any) -> None:
        tids.append(threading.get_native_id())
        while not stop.is_set():
            if sys.getprofile() is not None or sys.version_info >= (3, 12):
                traced.set()
            time.sleep(0)  # the other one needs the GIL
        leaf()

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(body)
    library = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    deadline = time.monotonic() + DEADLINE_S
    with tracing(arena_bytes=256 << 20) as recording:
        assert library.pthread_create(ctypes.byref(thread), None, callback, None) == 0
        while not traced.is_set() and time.monotonic() < deadline:
            leaf()
        stop.set()
        library.pthread_join(thread, None)
    assert traced.is_set()
    assert _leaves(recording, tids[0]) == 1


def test_a_range_of_its_own_thread_only() -> None:
    """Streams of threads do not mix: each is complete."""
    workers = [Worker() for _ in range(4)]
    with tracing() as recording:
        threads = [
            threading.Thread(target=lambda worker=worker: [worker.do(leaf) for _ in range(500)]) for worker in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
    for worker in workers:
        worker.end()
    assert [_leaves(recording, worker.tid) for worker in workers] == [500] * 4
