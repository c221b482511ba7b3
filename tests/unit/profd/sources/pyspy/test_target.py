"""The sampled process as it is looked at from outside."""

from __future__ import annotations

import threading

from profd.sources.pyspy import target
from profd.sources.pyspy.target import Target
from profd.targets import procfs
from profd.targets.table import ProcessTable

from tests.support.waiting import until


def test_looks_at_threads_keep_nobody_waiting() -> None:
    me = ProcessTable().get(threading.main_thread().native_id or 0)
    assert me is not None
    watched, ends = Target(me), threading.Event()
    worker = threading.Thread(target=ends.wait)
    worker.start()
    task = str(worker.native_id)

    def look() -> None:
        watched.look_at_threads()
        target._looks.submit(lambda: None).result()

    look()
    begun, held = threading.Event(), threading.Event()
    target._looks.submit(lambda: begun.set() or held.wait())  # a look at a process of many threads
    begun.wait()
    ends.set()
    worker.join()
    until(lambda: int(task) not in procfs.tasks_of(me.id.pid), "it has ended")
    for _ in range(3):
        watched.look_at_threads()
    assert watched.ended == {}
    assert target._looks._work_queue.qsize() == 1
    held.set()
    until(lambda: look() or task in watched.ended, "its end is noted")
