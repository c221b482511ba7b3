"""Programs that fork and exec while they are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import (
    COUNT,
    Captures,
    attached,
    sources,
    sql,
    values,
    whole,
)
from tests.support.daemon import RunningDaemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


FORKS = (
    COUNT.replace(
        "    i += 1\n",
        "    i += 1\n    if i % 500 == 250 and i < 3000:\n        pids.append(fork(i))\n",
    )
    .replace(
        "done = threading.Event()",
        """done = threading.Event()
pids = []
def fork(i):
    with profclient.record_function("around the fork"):
        pid = os.fork()
        if pid == 0:
            for j in range(50):
                with profclient.record_function("of a child"):
                    profclient.counter("n", -1 - j)
    if pid == 0:
        os._exit(7)
    return pid
""",
    )
    .replace(
        "print(i, checksum, flush=True)",
        "codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]\n"
        "assert set(codes) <= {7}\nprint(i, checksum, flush=True)",
    )
)


def test_children_write_nothing_into_their_parents_trace(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, FORKS) as job:
        capture = captures.recording(job.pid)
        until(lambda: job.count > 3000, "it has forked")
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        found = values(daemon, target.trace)
        assert whole(found)
        assert min(found) >= 0
        counted = dict(sql(daemon, target.trace, "select name, count(*) from events group by name"))
        assert "of a child" not in counted
        job.check_results()


LIVE_CHILD = """
import os, sys
import profclient
profclient.attach()
parent = os.getpid()
with profclient.record_function("opened by the parent"):
    pid = os.fork()
if pid:
    print("ready", flush=True)
    sys.stdin.read()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    print(0, 0, flush=True)
else:
    while os.getppid() == parent:  # nobody else would end it
        with profclient.record_function("child"):
            pass
"""


def test_a_child_is_a_process_of_its_own(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path, LIVE_CHILD) as job:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
        [child] = [int(pid) for pid in children.read_text().split()]
        until(lambda: "sdk" in sources(daemon, child), "the child has attached")
        capture = Captures(daemon).record(job.pid, child)
        events = {target.pid: target.events for target in capture.targets}
        assert events[child] > 0
        assert events[job.pid] == 0
        job.check_results()


EXECS = f"""
import os, sys, threading
import profclient
profclient.attach()
print("ready", flush=True)
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
i = 0
while not told.is_set():
    with profclient.record_function("before exec"):
        profclient.counter("n", i)
    i += 1
    told.wait(0.001)
os.execv(sys.executable, [sys.executable, "-c", {COUNT!r}, sys.argv[1]])
"""


def test_another_program_in_the_same_process(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, EXECS) as job:
        assert job.process.stdin is not None
        assert job.process.stdout is not None
        capture = captures.recording(job.pid)
        job.process.stdin.write("exec\n")
        job.process.stdin.flush()
        [target] = captures.ended(capture).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_TARGET_ENDED), target.message
        assert whole(values(daemon, target.trace))
        # What runs there now is recorded like any other.
        assert job.process.stdout.readline() == "ready\n"
        until(lambda: "sdk" in sources(daemon, job.pid), "it has attached")
        [target] = captures.record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        assert whole(values(daemon, target.trace))
        job.check_results()
