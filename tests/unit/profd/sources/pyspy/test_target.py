"""The sampled process as it is looked at from outside."""

from __future__ import annotations

import os
import threading

import pytest
from profd.sources.pyspy import target
from profd.sources.pyspy.target import Target
from profd.targets import procfs

from tests.support.python_jobs import seen
from tests.support.waiting import until


def test_the_end_of_a_thread_is_noted() -> None:
    me = seen(threading.main_thread().native_id or 0)
    watched, ends = Target(me), threading.Event()
    worker = threading.Thread(target=ends.wait)
    worker.start()
    task = worker.native_id or 0
    watched.note_ended()
    assert watched.ended == {}
    ends.set()
    worker.join()
    until(lambda: task not in procfs.tasks_of(me.id.pid), "it has ended")
    watched.note_ended()
    assert list(watched.ended) == [str(task)]


def test_of_a_process_with_too_many_threads_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    me = seen(os.getpid())
    looked_up: list[str] = []
    monkeypatch.setattr(Target, "_inner_ids", lambda self, threads: looked_up.extend(threads) or threads)
    monkeypatch.setattr(target, "THREADS_NOTED_MAX", 0)
    Target(me).note_ended()
    assert looked_up == []
    monkeypatch.setattr(target, "THREADS_NOTED_MAX", 1000)
    Target(me).note_ended()
    assert str(os.getpid()) in looked_up
