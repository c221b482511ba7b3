"""Attached processes: how soon a capture records, and what many of them cost while nobody captures."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as parquet
from profclient.connection import Daemon
from profproto.v1 import capture_pb2

from bench.floors.empty_call import EmptyCall
from bench.live import Live, profd, wait_until
from bench.measure import Row

CAPTURES = 60
PAUSE_SECONDS = 0.05  # before each call: whoever starts a capture has not just done so
WINDOW_NS = 50_000_000
PROCESSES = 500
WATCHED_SECONDS = 20.0

BUSY = """
import profclient
profclient.attach()
record = profclient.record_function
print("ready", flush=True)
while True:
    with record("work"):
        sum(range(50))
"""
SLEEPY = """
import profclient, time
profclient.attach()
record = profclient.record_function
print("ready", flush=True)
while True:
    with record("work"):
        pass
    time.sleep(0.0001)
"""
# What runs, and whether the client asked for the capture's estimate just before, as one that shows it first does.
PROGRAMS = (
    ("a busy Python loop", BUSY, False),
    ("a busy Python loop", BUSY, True),
    ("a loop that sleeps", SLEEPY, False),
)

# Children of one fork server: hundreds of Pythons in a few hundred MB. They attach when standard input ends.
FORKS = """
import gc, os, sys, time
import profclient.agent, profclient.address
gc.freeze()
for _ in range(PROCESSES):
    if os.fork() == 0:
        os.read(0, 1)
        profclient.agent.attach(quiet=True)
        time.sleep(1e6)
print("forked", flush=True)
time.sleep(1e6)
"""


SINGLES = 8
ATTACH = "profclient.agent.attach(quiet=True)"
SINGLE = """
import time
import profclient.agent, profclient.address
ATTACH
while ATTACHED and profclient.agent._attachment.state != "connected":
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(1e6)
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    with profd() as live:
        for what, program, estimated in PROGRAMS:
            yield _first_event(live, what, program, estimated)
        yield _empty_call(live.folder)
    yield from _idle()


def _first_event(live: Live, what: str, program: str, estimated: bool) -> Row:
    """StartCapture sent to the start of the first recorded range, both on CLOCK_REALTIME."""
    job = live.job(program)
    os.environ["PROFD_ADDRESS"] = live.environment["PROFD_ADDRESS"]
    if job.stdout is None or job.stdout.readline() != "ready\n":
        raise RuntimeError("the job ended")
    wait_until("the job attaches", lambda: live.attached() >= {job.pid})
    found, floors = [], []
    with Daemon() as daemon, contextlib.closing(EmptyCall(live.folder)) as empty:
        for _ in range(CAPTURES):
            time.sleep(PAUSE_SECONDS)
            floors.append(empty.way_ms())
            time.sleep(PAUSE_SECONDS)
            found.append(_delay_ms(live, daemon, job.pid, estimated))
    delays = sorted(delay for delay in found if delay is not None)
    job.kill()
    middle, late = statistics.median(delays), delays[int(len(delays) * 0.99)]
    least = statistics.median(floors)
    return Row(
        "arming",
        f"StartCapture sent to first event recorded, in {what}" + (", right after its estimate" if estimated else ""),
        f"p50 {middle:.2f} ms, p99 {late:.2f} ms",
        floor=f"{least:.2f} ms (p50 of an empty call's way to its handler)",
        ratio=middle / least,
        bar="p50 <= 1 ms, p99 <= 20 ms",
        met=middle <= 1 and late <= 20,
        note=f"{CAPTURES} captures, least {delays[0]:.2f} ms; {len(found) - len(delays)} in which the job did not run",
    )


def _empty_call(folder: Path) -> Row:
    """What gRPC's client and its server take of the floor: either is replaced by one that only knows the bytes."""
    ends = {
        "gRPC to gRPC": (False, False),
        "gRPC to bytes": (False, True),
        "bytes to gRPC": (True, False),
        "bytes to bytes": (True, True),
    }
    ways: dict[str, list[float]] = {name: [] for name in ends}
    with contextlib.ExitStack() as stack:
        calls = {
            name: stack.enter_context(contextlib.closing(EmptyCall(folder, bare_client=client, bare_server=server)))
            for name, (client, server) in ends.items()
        }
        for _ in range(CAPTURES):
            for name, call in calls.items():
                time.sleep(PAUSE_SECONDS)
                ways[name].append(call.way_ms())
    middles = {name: statistics.median(way) for name, way in ways.items()}
    return Row(
        "arming",
        "an empty call of grpc.aio, its client quiet for 50 ms: way to its handler",
        "",
        floor=f"{middles['gRPC to gRPC']:.2f} ms",
        note="p50 in turns; " + ", ".join(f"{name}: {middle:.2f} ms" for name, middle in middles.items()),
    )


def _delay_ms(live: Live, daemon: Daemon, pid: int, estimated: bool) -> float | None:
    selector = capture_pb2.Selector(pids=[pid])
    options = capture_pb2.Options(duration_ns=WINDOW_NS, source="sdk")
    request = capture_pb2.StartCaptureRequest(request_id=os.urandom(8).hex(), selector=selector, options=options)
    if estimated:
        daemon.call(
            daemon.captures.EstimateCapture, capture_pb2.EstimateCaptureRequest(selector=selector, options=options)
        )
    sent_ns = time.time_ns()
    capture = daemon.call(daemon.captures.StartCapture, request)
    (target,) = live.profctl("wait", capture.id)["targets"]
    if (target["message"] or "").startswith("nothing was recorded"):
        return None
    if target["state"] != "stored":
        raise RuntimeError(f"{target['state']}: {target['message']}")
    segment = live.folder / "s" / "traces" / target["trace"] / "segment-00000.parquet"
    first_ns = parquet.read_table(segment, columns=["start"])["start"][0].as_py()
    return float(first_ns - sent_ns) / 1e6


def _idle() -> Iterator[Row]:
    """Hundreds of processes that nobody captures, before and after they attach."""
    with profd() as live:
        process = psutil.Process(live.daemon.pid)
        parent = live.job(FORKS.replace("PROCESSES", str(PROCESSES)))
        if parent.stdout is None or parent.stdin is None or parent.stdout.readline() != "forked\n":
            raise RuntimeError("the forks failed")
        attached = psutil.Process(parent.pid).children()
        for child in attached:
            live.stack.callback(child.kill)
        for _ in range(3):
            live.attached()  # the daemon has listed as many processes before as after
        before_bytes = process.memory_info().rss
        parent.stdin.close()
        wait_until("all attach", lambda: len(live.attached()) >= PROCESSES)
        time.sleep(2)  # what `ps` set in motion is over
        each_kb = (process.memory_info().rss - before_bytes) / PROCESSES / 1024
        wakes, used = _wakes(attached), _cpu_seconds(process)
        time.sleep(WATCHED_SECONDS)
        share, woken = (_cpu_seconds(process) - used) / WATCHED_SECONDS, _wakes(attached) - wakes
    what = f"{PROCESSES} attached idle processes"
    yield Row("arming", f"{what}: the daemon's share of a core", f"{share:.2%}", bar="<= 0.2 %", met=share <= 0.002)
    shown, note = f"{each_kb:.1f} KB", "its memory after and before they attached"
    yield Row("arming", f"{what}: memory in the daemon, each", shown, bar="<= 5 KB", met=each_kb <= 5, note=note)
    yield Row("arming", f"{what}: wake-ups in {WATCHED_SECONDS:.0f} s, all together", f"{woken}", met=woken == 0)
    yield _target_memory()


def _target_memory() -> Row:
    """No forks here: what they share hides what each would have."""
    with profd() as live:
        kb = {}
        for attach in ("", "profclient.agent.attach(quiet=True)"):
            jobs = [
                live.job(SINGLE.replace("ATTACHED", repr(bool(attach))).replace("ATTACH", attach))
                for _ in range(SINGLES)
            ]
            for job in jobs:
                if job.stdout is None or job.stdout.readline() != "ready\n":
                    raise RuntimeError("a job ended")
            kb[attach] = statistics.median(_rollup_kb(job.pid) for job in jobs)
    more = kb[ATTACH] - kb[""]
    note = f"private memory of {SINGLES}, over as many that import the same and do not attach"
    what = "an attached idle process: memory in the target"
    return Row("arming", what, f"{more:.0f} KB", bar="<= 100 KB", met=more <= 100, note=note)


def _rollup_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))


def _wakes(processes: list[psutil.Process]) -> int:
    """Context switches of all threads, voluntary and not."""
    found = 0
    for process in processes:
        for task in Path(f"/proc/{process.pid}/task").iterdir():
            lines = (task / "status").read_text().splitlines()
            found += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return found


def _cpu_seconds(process: psutil.Process) -> float:
    times: Any = process.cpu_times()
    return float(times.user + times.system)
