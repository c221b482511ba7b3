"""Stopping: from StopCapture to a trace that can be asked, and what the job feels of it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from profclient.connection import Daemon
from profproto.v1 import capture_pb2

from bench.live import profd, wait_until
from bench.measure import Row

TIMES = 5
BAR_SECONDS = 1.0
BAR_PAUSE_MS = 5.0

# Records what it is asked for, works on, and writes down each of its loops that took long. Ends with its input.
JOB = """
import json, sys, threading, time
import profclient
profclient.attach()
record = profclient.record_function
names = [f"layer.{number}" for number in range(40)]
asked = threading.Semaphore(0)
done = threading.Event()
def listen():
    for line in sys.stdin: asked.release()
    done.set()
threading.Thread(target=listen, daemon=True).start()
slow, before = [], time.time_ns()
print("ready", flush=True)
def look():
    global before
    now = time.time_ns()
    if now - before > 1_000_000: slow.append((before, now))
    before = now
while not done.is_set():
    if asked.acquire(blocking=False):
        for number in range(EVENTS // 4):
            with record("step"):
                with record(names[number % 40]):
                    pass
                with record("optimizer"):
                    with record("kernel"):
                        pass
            if number % 1000 == 0:
                time.sleep(0.001)
            look()
        print("recorded", flush=True)
    with record("after"):  # often enough to be stopped in the middle of it
        sum(range(200))
    look()
print(json.dumps(slow), flush=True)
"""


@dataclass(frozen=True)
class Stop:
    """One capture's: Unix ns of the call and of the stored trace, and of an equally long time before."""

    called_ns: int
    stored_ns: int
    events: int
    calm_ns: tuple[int, int]

    @property
    def seconds(self) -> float:
        """From the one to the other."""
        return (self.stored_ns - self.called_ns) / 1e9


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    with profd() as live:
        job = live.job(JOB.replace("EVENTS", str(events)), enabled=False)
        if job.stdout is None or job.stdin is None or job.stdout.readline() != "ready\n":
            raise RuntimeError("the job ended")
        wait_until("the job attaches", lambda: job.pid in live.attached())
        os.environ["PROFD_ADDRESS"] = live.environment["PROFD_ADDRESS"]
        stops = []
        with Daemon() as daemon:
            for _ in range(TIMES):
                capture = _start(daemon, job.pid)
                job.stdin.write("go\n")
                job.stdin.flush()
                if job.stdout.readline() != "recorded\n":
                    raise RuntimeError("the job ended")
                stops.append(_stop(daemon, capture))
        job.stdin.close()
        slow = [tuple(pair) for pair in json.loads(job.stdout.readline())]
    taken = sorted(stop.seconds for stop in stops)
    middle = statistics.median(taken)
    yield Row(
        "stopping",
        f"StopCapture sent to trace stored, {stops[0].events / 1e6:.2f}M events, recorder path",
        f"{middle:.2f} s",
        bar=f"<= {BAR_SECONDS:g} s",
        met=middle <= BAR_SECONDS,
        note=f"{TIMES} captures, {taken[0]:.2f} to {taken[-1]:.2f} s; events arrive while they are recorded",
    )
    pauses = sorted(_longest_ms(slow, stop.called_ns, stop.stored_ns) for stop in stops)
    calm = sorted(_longest_ms(slow, *stop.calm_ns) for stop in stops)
    yield Row(
        "stopping",
        "the same: the job's longest pause from the call to the stored trace",
        f"{statistics.median(pauses):.1f} ms",
        floor=f"{statistics.median(calm):.1f} ms: in as long a time with nobody capturing",
        bar=f"<= {BAR_PAUSE_MS:g} ms",
        met=statistics.median(pauses) <= BAR_PAUSE_MS,
        note=f"{_listed(pauses)}; without: {_listed(calm)}. The job shares its cores with the worker that stores "
        "the trace: what the scheduler does to it is in both",
    )


def _listed(milliseconds: list[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in milliseconds)


def _start(daemon: Daemon, pid: int) -> str:
    request = capture_pb2.StartCaptureRequest(
        request_id=os.urandom(8).hex(),
        selector=capture_pb2.Selector(pids=[pid]),
        options=capture_pb2.Options(source="sdk", force=True, duration_ns=600 * 10**9),
    )
    capture = str(daemon.call(daemon.captures.StartCapture, request).id)
    _until(daemon, capture, capture_pb2.STATE_RECORDING)
    return capture


def _stop(daemon: Daemon, capture: str) -> Stop:
    called_ns = time.time_ns()
    daemon.call(daemon.captures.StopCapture, capture_pb2.CaptureRef(id=capture))
    found = _until(daemon, capture, capture_pb2.STATE_STORED)
    stored_ns = time.time_ns()
    (target,) = found.targets
    if target.state != capture_pb2.STATE_STORED:
        raise RuntimeError(f"{capture_pb2.State.Name(target.state)}: {target.message}")
    time.sleep(1)  # workers and the journal come to rest
    calm_from_ns = time.time_ns()
    time.sleep((stored_ns - called_ns) / 1e9)
    return Stop(called_ns, stored_ns, target.events, (calm_from_ns, time.time_ns()))


def _until(daemon: Daemon, capture: str, state: int) -> capture_pb2.Capture:
    request = capture_pb2.WatchCaptureRequest(id=capture)
    with contextlib.closing(daemon.stream(daemon.captures.WatchCapture, request)) as changes:
        for found in changes:
            if all(target.state >= state for target in found.targets):
                return found
    raise RuntimeError("the capture ended otherwise")


def _longest_ms(slow: list[tuple[int, ...]], from_ns: int, until_ns: int) -> float:
    """Of the loops that lie in that time or touch it; 1 ms where none took longer."""
    inside = [end - begin for begin, end in slow if end > from_ns and begin < until_ns]
    return max(inside, default=1_000_000) / 1e6
