"""(k) How long a job's CUDA calls stand behind CUPTI's beginning and end, and what that does to a graph being captured.

Each case is a process of its own, one after the other. Its program keeps a queue of a known length on the GPU, in
seconds of work: a thread launches ahead and never waits, another launches a little on a stream of its own. Each call
by which CUPTI begins and ends is timed, and so is the longest call of either thread within it. No PyTorch, no daemon.

`python -m bench.gpu.queue CASE` is one of these processes: a line of JSON for each call, and "done".
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profclient import launch

from bench.gpu import cupti, device, dying, machine
from bench.gpu.cupti import Part
from bench.gpu.driver import Driver, DriverError
from bench.gpu.results import Check, Result
from bench.measure import ROOT

SECONDS = device.of(200, rehearsed=600)
CASE_SECONDS = device.of(25, rehearsed=60)  # one that hangs is a result
QUEUE_SECONDS = 1.0
LAUNCH_SECONDS = 0.002  # of one launch of the queue
NODES = 10  # of a graph
_GLOBAL, _OF_THREAD, _RELAXED = 0, 1, 2  # CU_STREAM_CAPTURE_MODE_*; torch.cuda.graph captures with the first
_BYSTANDER_SECONDS = 0.001  # between two launches of the second thread
_SETTLE_SECONDS = 0.3
STOOD_MOST = 0.1  # of a job that `profctl run --cuda` started
_SLOW_SECONDS = 0.002  # calls that take less are in the file alone

_Calls = Sequence[tuple[str, Callable[[], object]]]

SPIN = "profd_queue_spin"  # one thread, for so many ns
PTX = f"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry {SPIN}(.param .u64 where, .param .u32 one, .param .u32 ns) {{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r1, [ns];
  cvt.u64.u32 %rd1, %r1;
  mov.u64 %rd2, %globaltimer;
  add.u64 %rd3, %rd2, %rd1;
AGAIN:
  mov.u64 %rd4, %globaltimer;
  setp.lt.u64 %p1, %rd4, %rd3;
  @%p1 bra AGAIN;
  ret;
}}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """What begins beside the queue. `part` None: our collector; no kinds and not subscribed: no CUPTI."""

    part: Part | None = None
    graphs: bool = True  # the queue is of graphs, not of launches
    seconds: float = QUEUE_SECONDS
    idle_first: Part | None = None  # once before the queue, with the end that it names
    primed: str = ""  # CUPTI was subscribed to and left before "cuInit", or before a "context", or by our "injection"
    flushes: bool = False  # what CUPTI hands over when, once it is off
    synchronize: int | None = None  # instead: cuCtxSynchronize, in this mode of capturing
    capturing: str = ""  # a graph is captured while it "begin"s or "end"s
    mode: int = _GLOBAL  # of that capture


CASES: dict[str, Case] = {  # most telling first
    "ours": Case(),
    "ours_injected": Case(primed="injection"),
    "capturing_end": Case(capturing="end"),
    "flushes": Case(Part(cupti.ALL), flushes=True),
    "capturing_begin": Case(capturing="begin"),
    "all": Case(Part(cupti.ALL)),
    "synchronize": Case(synchronize=_GLOBAL),
    "primed_before_context": Case(Part(cupti.ALL), primed="context"),
    "primed_before_init": Case(Part(cupti.ALL), primed="cuInit"),
    "capturing_wait": Case(capturing="begin", synchronize=_GLOBAL),
    "capturing_wait_relaxed": Case(capturing="begin", synchronize=_RELAXED),
    "capturing_wait_thread": Case(capturing="begin", synchronize=_OF_THREAD),
    "capturing_of_thread_wait": Case(capturing="begin", synchronize=_GLOBAL, mode=_OF_THREAD),
    "capturing_of_thread_wait_relaxed": Case(capturing="begin", synchronize=_RELAXED, mode=_OF_THREAD),
    "capturing_relaxed_wait": Case(capturing="begin", synchronize=_GLOBAL, mode=_RELAXED),
    "capturing_relaxed_wait_relaxed": Case(capturing="begin", synchronize=_RELAXED, mode=_RELAXED),
    "capturing_all_end": Case(Part(cupti.ALL), capturing="end"),
    "all_idle_first": Case(Part(cupti.ALL), idle_first=Part(cupti.ALL)),
    "all_finalized_first": Case(Part(cupti.ALL), idle_first=Part(cupti.ALL, end="finalize")),
    "subscribed_first": Case(Part(cupti.ALL), idle_first=Part()),
    "not_subscribed": Case(Part((cupti.KERNEL,), subscribed=False)),
    "all_launches": Case(Part(cupti.ALL), graphs=False),
    "subscribe": Case(Part()),
    "all_short": Case(Part(cupti.ALL), seconds=0.2),
    "all_none": Case(Part(cupti.ALL), seconds=0.0),
    "kernels": Case(Part((cupti.KERNEL,))),
    "calls": Case(Part((cupti.RUNTIME, cupti.DRIVER))),
    "ours_launches": Case(graphs=False),
}


def run() -> Result:
    """All cases, one after the other: a GPU that two use has another queue."""
    result = Result("queue", machine.describe())
    deadline = time.monotonic() + SECONDS
    for name in CASES:
        if time.monotonic() > deadline - CASE_SECONDS / 3:
            result.checks.append(Check(f"{name}: measured", None, "no time was left"))
            continue
        found = result.data[name] = _outcome(name, min(CASE_SECONDS, deadline - time.monotonic()))
        check = judge(name, found)
        result.checks.append(check)
        print(f"queue: {check.passed} {name}: {check.detail}", flush=True)
    return result


def judge(name: str, found: dict[str, Any]) -> Check:
    """Whether the job's calls went well beside our collector, which is promised; beside parts of CUPTI it is asked.

    How long it stood is a fact and no promise, but for the case that is injected.
    """
    case = CASES[name]
    lived = found["ended"] == "exit 0" and not any("error" in one for one in found["calls"])
    promised = case.part is None and case.synchronize is None
    if case.primed == "injection":
        stood = [one["queue_s"] for one in found["calls"] if "queue_s" in one]
        lived = lived and max(stood) <= STOOD_MOST
    slow = [one for one in found["calls"] if one.get("s", 1.0) >= _SLOW_SECONDS]
    text = "; ".join([found["ended"], *map(_text, slow), found["said"].strip()[-300:]])
    return Check(f"{name}: lives", True if lived else (False if promised else None), text)


def _text(call: dict[str, Any]) -> str:
    if "error" in call:
        return f"{call['call']}: {call['error']}"
    if "s" not in call:
        return " ".join(map(str, call.values()))[:1500]
    return (
        f"{call['call']} {call['s'] * 1e3:.1f} ms (launches {call['queue_s'] * 1e3:.1f}, {call['other_s'] * 1e3:.1f})"
    )


def _outcome(name: str, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as errors:
        command = [sys.executable, "-m", "bench.gpu.queue", name]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        ended, out = dying.outcome(process, seconds)
        errors.seek(0)
        calls = [json.loads(line) for line in out.splitlines() if line.startswith('{"call"')]
        return {"ended": ended, "calls": calls, "said": errors.read()[-3000:]}


# --- in a process of its own ---


class Launcher:
    """A thread that keeps so many seconds of work ahead of the GPU, and remembers each of its calls."""

    def __init__(self, driver: Driver, launch: Callable[[], None], every: float, ahead: float) -> None:
        self.calls: list[tuple[float, float]] = []  # begin, end; only this thread adds
        self._ends = False
        self._thread = threading.Thread(target=self._run, args=(driver, launch, every, ahead), daemon=True)
        self._thread.start()

    def _run(self, driver: Driver, launch: Callable[[], None], every: float, ahead: float) -> None:
        driver.use()
        begin = time.perf_counter()
        while not self._ends:
            before = time.perf_counter()
            if len(self.calls) * every > before - begin + ahead:
                time.sleep(every / 4)
                continue
            launch()
            self.calls.append((before, time.perf_counter()))

    def end(self) -> None:
        """Launch no more."""
        self._ends = True
        self._thread.join()

    def longest(self, begin: float, end: float) -> float:
        """Seconds of its longest call that overlaps."""
        calls = self.calls[-200_000:]
        return max((done - at for at, done in calls if done > begin and at < end), default=0.0)


class Job:
    """The program: a context, and what is launched. Raises DriverError."""

    def __init__(self, case: Case) -> None:
        self.driver = Driver(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1"))
        [self._kernel] = self.driver.function(PTX, SPIN)
        self._where = self.driver.memory(4)  # only the stand-in of a rehearsal writes there
        self._stream, self._other, self._captured = (self.driver.stream() for _ in range(3))
        with self.driver.captured(self._stream) as self._graph:
            for _ in range(NODES):
                self._spin(self._stream, LAUNCH_SECONDS / NODES)
        self._replay() if case.graphs else self._launch()
        self._aside()
        self.driver.synchronize()
        self._case = case
        self._launchers: list[Launcher] = []

    def begin(self) -> None:
        """The two threads; returns when the queue is as long as it should be."""
        launch = self._replay if self._case.graphs else self._launch
        self._launchers = [
            Launcher(self.driver, launch, LAUNCH_SECONDS, self._case.seconds),
            Launcher(self.driver, self._aside, _BYSTANDER_SECONDS, 0.0),
        ]
        time.sleep(_SETTLE_SECONDS)

    def end(self) -> None:
        """Launch no more, and wait for the GPU."""
        for launcher in self._launchers:
            launcher.end()
        self.driver.synchronize()

    def launched_from(self) -> None:
        """Count launches from here on."""
        self._from = [len(launcher.calls) for launcher in self._launchers]

    def launched(self) -> dict[str, int]:
        """Kernels that were launched since, at least."""
        queued, aside = (len(one.calls) - at for one, at in zip(self._launchers, self._from, strict=True))
        return {"kernels": queued * (NODES if self._case.graphs else 1) + aside}

    def timed(self, name: str, call: Callable[[], object]) -> None:
        """Make a call and say how long it and the job's calls took."""
        begin = time.perf_counter()
        try:
            call()
        except (cupti.CuptiError, DriverError) as error:
            print(json.dumps({"call": name, "error": str(error)}), flush=True)
            return
        end = time.perf_counter()
        time.sleep(0.02)  # calls that stood have returned
        longest = [launcher.longest(begin, end) for launcher in self._launchers] or [0.0, 0.0]
        told = {"call": name, "s": end - begin, "queue_s": longest[0], "other_s": longest[1]}
        print(json.dumps(told), flush=True)

    def capturing(self, meanwhile: Callable[[], None]) -> None:
        """Begin to capture a graph as torch.cuda.graph does, do the other on a thread of its own, and end it."""
        self.driver.call("cuStreamBeginCapture_v2", self._captured, c_int(self._case.mode))
        self._spin(self._captured, LAUNCH_SECONDS)
        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()
        graph = ctypes.c_void_p()

        def end() -> None:
            self._spin(self._captured, LAUNCH_SECONDS)
            self.driver.call("cuStreamEndCapture", self._captured, ctypes.byref(graph))

        self.timed("the capture's end", end)

    def synchronize(self) -> None:
        """As the end of a recording does, on a thread that has no context of its own."""
        self.driver.use()
        mode = c_int(self._case.synchronize or _GLOBAL)
        self.driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        self.driver.synchronize()

    def _spin(self, stream: ctypes.c_void_p, seconds: float) -> None:
        self.driver.launch(self._kernel, 1, 1, stream, self._where, c_uint(1), c_uint(int(seconds * 1e9)))

    def _replay(self) -> None:
        self.driver.call("cuGraphLaunch", self._graph, self._stream)

    def _launch(self) -> None:
        self._spin(self._stream, LAUNCH_SECONDS)

    def _aside(self) -> None:
        self._spin(self._other, 1e-6)


class _Ours:
    """Our collector, in the form of a session of bench/gpu/cupti.py."""

    def calls(self) -> _Calls:
        """What begins it."""
        from profclient import _recorder, gpu

        def start() -> None:
            _recorder.arm(arena_bytes=64 << 20, sources=8)
            gpu.start()

        return [("our collector's start", start)]

    def ends(self) -> _Calls:
        """What ends it."""
        from profclient import _recorder, gpu

        def stop() -> None:
            report = gpu.stop()
            print(f"{report['gpu.state']}, {report['gpu.device_events']} device events", file=sys.stderr)
            _recorder.disarm()
            _recorder.release()

        return [("our collector's stop", stop)]


class _Parts:
    """A part of CUPTI, call by call."""

    def __init__(self, part: Part) -> None:
        self._session = cupti.Session(part)

    def calls(self) -> _Calls:
        """What begins it."""
        return self._session.beginning()

    def ends(self) -> _Calls:
        """What ends it."""
        return self._session.ending()

    def flush_complete(self) -> None:
        """What is complete, no more."""
        self._session.flush_complete()

    def buffers_out(self) -> int:
        """Buffers that CUPTI has."""
        return self._session.buffers_out

    def bytes(self) -> int:
        """Of records that it has handed over."""
        return self._session.bytes


class _Waits:
    """No CUPTI: what the end of a recording does to wait for kernels."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def calls(self) -> _Calls:
        """The wait."""
        return [("cuCtxSynchronize", self._job.synchronize)]

    def ends(self) -> _Calls:
        """Nothing."""
        return []


def main() -> None:
    """The case of the first argument."""
    faulthandler.enable()
    case = CASES[sys.argv[1]]
    if case.primed:
        _prime(case)
    job = Job(case)
    session: _Ours | _Parts | _Waits = _Ours() if case.part is None else _Parts(case.part)
    if case.synchronize is not None:
        session = _Waits(job)
    calls, ends = session.calls(), session.ends()
    if case.idle_first:
        first = cupti.Session(case.idle_first)
        first.begin()
        first.finish()
    if case.capturing:
        _beside_a_capture(job, case, calls, ends)
    else:
        job.begin()
        _all(job, calls)
        job.launched_from()
        time.sleep(_SETTLE_SECONDS)
        print(json.dumps({"call": "launched", **job.launched()}), flush=True)
        if case.flushes:
            _flushes(job, session, ends)
        _all(job, ends)
        job.end()
    print("done", flush=True)
    os._exit(0)  # what CUPTI does at the end of a process is not asked


def _flushes(job: Job, session: _Ours | _Parts | _Waits, ends: _Calls) -> None:
    """Launch no more and turn the kinds off; how many buffers CUPTI has after each flush, and when the GPU is done."""
    assert isinstance(session, _Parts)
    begin = time.perf_counter()
    waits = threading.Thread(target=job.end)
    waits.start()
    _all(job, [one for one in ends if one[0].startswith("disable")])
    seen: list[tuple[float, int, int, bool]] = []
    while time.perf_counter() - begin < QUEUE_SECONDS + _SETTLE_SECONDS * 2:
        session.flush_complete()
        now = (time.perf_counter() - begin, session.buffers_out(), session.bytes(), not waits.is_alive())
        if not seen or seen[-1][1:] != now[1:]:
            seen.append(now)
        time.sleep(0.02)
    print(json.dumps({"call": "flushes", "seen": seen[:100]}), flush=True)


def _prime(case: Case) -> None:
    """Where nothing can be queued yet."""
    if case.primed == "injection":
        os.environ |= {
            "CUDA_INJECTION64_PATH": str(launch.native("libprofd_cupti.so")),
            "PROFD_ATTACHED_PID": str(os.getpid()),
        }
        ctypes.CDLL(os.environ.get("PROFD_CUPTI_LIBRARY") or cupti.mapped_cupti())  # as PyTorch has it mapped
        begin = time.perf_counter()
        ctypes.CDLL(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1")).cuInit(0)
        told = {"s": time.perf_counter() - begin, "queue_s": 0.0, "other_s": 0.0, "resident_kib": _resident()}
        print(json.dumps({"call": "cuInit", **told}), flush=True)
        return
    if case.primed == "context":
        ctypes.CDLL(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1")).cuInit(0)
    begin = time.perf_counter()
    first = cupti.Session(Part())
    first.begin()
    first.finish()
    print(json.dumps({"call": "primed", "s": time.perf_counter() - begin, "queue_s": 0.0, "other_s": 0.0}), flush=True)


def _resident() -> int:
    """KiB of this process that are in memory."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _beside_a_capture(job: Job, case: Case, calls: _Calls, ends: _Calls) -> None:
    if case.capturing == "end":
        _all(job, calls)
        job.capturing(lambda: _all(job, ends))
    else:
        job.capturing(lambda: _all(job, calls))
        _all(job, ends)


def _all(job: Job, calls: _Calls) -> None:
    for name, call in calls:
        job.timed(name, call)


if __name__ == "__main__":
    main()
