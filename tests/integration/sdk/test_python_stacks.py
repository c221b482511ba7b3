"""Python calls of attached processes, from the tracer to what a trace says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Captures, attached, sql
from tests.support.daemon import RunningDaemon

pytestmark = pytest.mark.slow

# A range is open whenever recording begins, within frames that are.
NESTED = """
import sys, threading, time
import profclient
profclient.attach()
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
def turn():
    with profclient.record_function("work"):
        time.sleep(0.005)
def main():
    while not done.is_set():
        turn()
main()
"""

MODULES = """
import sys, threading
import profclient
profclient.attach()
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))
x = torch.ones(2, 4)
model(x)
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
while not done.is_set():
    model(x)
    done.wait(0.005)
"""

NAMED = """
import sys, threading, time
import profclient
profclient.attach()
def work():
    time.sleep(0.001)
def works(until):
    while not until.is_set():
        work()
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
threading.Thread(target=works, args=(done,), name="prefetcher").start()
print("ready", flush=True)
works(done)
"""


def test_frames_that_were_open_at_the_start_are_around_what_follows(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path, NESTED) as job:
        [target] = Captures(daemon).record(job.pid, stacks=True).targets
        assert target.state == pb.STATE_STORED, target.message
        outer = "select row from events where name like '%: main' or name like '%: <module>'"
        turns = sql(daemon, target.trace, "select parent from events where name like '%: turn'")
        [main] = sql(daemon, target.trace, "select row from events where name like '%: main'")
        assert len(sql(daemon, target.trace, outer)) == 2
        assert len(turns) > 1
        assert all(parent == main[0] for [parent] in turns)


def test_modules_have_the_names_of_their_model(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path, MODULES) as job:
        [target] = Captures(daemon).record(job.pid, stacks=True, modules=True).targets
        assert target.state == pb.STATE_STORED, target.message
        found = sql(daemon, target.trace, "select distinct name, module from events where name like 'nn.Module: %'")
        # The number is that of the first call, and the window may begin anywhere in the model.
        classes = sorted((name.removeprefix("nn.Module: ").partition("_")[0], path or "") for name, path in found)
        assert classes == [("Linear", "0"), ("Linear", "1.1"), ("ReLU", "1.0"), ("Sequential", ""), ("Sequential", "1")]


def test_threads_have_the_names_that_python_knows(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path, NAMED) as job:
        [target] = Captures(daemon).record(job.pid, stacks=True).targets
        assert target.state == pb.STATE_STORED, target.message
        found = sql(
            daemon,
            target.trace,
            "select distinct t.name from events e join threads t using (thread) where e.name like '%: work'",
        )
        assert sorted(name for [name] in found) == ["MainThread", "prefetcher"]
