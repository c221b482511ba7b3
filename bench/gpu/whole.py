"""(j) CUDA graphs recorded as one (CUPTI's GRAPH_TRACE), which a job died of: what dies, and where; at most 110 s.

Each case is a process of its own whose death is a result. A few run side by side. Those that died run again
under a debugger, for the stack of the thread that died. No daemon takes part.

`python -m bench.gpu.whole CASE` is one of these processes: a line of JSON for each thing that it has done.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu import cupti, device, dying, machine
from bench.gpu.cupti import Part
from bench.gpu.results import Check, Result
from bench.measure import ROOT

SECONDS = device.of(110, rehearsed=600)
CASE_SECONDS = device.of(25, rehearsed=120)  # one that hangs is a result
TOGETHER = device.of(4, rehearsed=2)
DEBUGGED = device.of(3, rehearsed=1)  # deaths that are looked into
REPLAYS = device.of(50, rehearsed=3)
GRAPH = 51  # CUPTI_ACTIVITY_KIND_GRAPH_TRACE
_CALLS = (cupti.RUNTIME, cupti.DRIVER)
_DEBUGGER = "gdb"  # cuda-gdb holds CUPTI itself, and nothing is recorded
_DEBUGGER_ORDERS = (
    "set pagination off",
    "handle SIGUSR1 SIGPIPE nostop noprint pass",
    "catch syscall exit_group",
    "run",
    "bt 40",
    "info registers rip",
    "x/4i $rip",
    "info sharedlibrary cupti",
    "thread apply all bt 12",
    "kill",
)


@dataclass(frozen=True, slots=True)
class Case:
    """Who records, and when the graph is made. `part` None: our collector."""

    part: Part | None = None
    whole: bool = True  # of our collector
    made: str = "before"  # any recording, or "within", or "between" two
    torch: bool = False  # the job of bench/gpu/options.py: the graph is PyTorch's


CASES: dict[str, Case] = {  # most telling first
    "ours_nodes": Case(whole=False),
    "ours_whole": Case(),
    "torch_whole": Case(torch=True),
    "torch_nodes": Case(torch=True, whole=False),
    "graph_alone": Case(Part((GRAPH,))),
    "graph_kernels": Case(Part((cupti.KERNEL, GRAPH))),
    "ours_whole_within": Case(made="within"),
    "ours_whole_between": Case(made="between"),
    "torch_whole_within": Case(torch=True, made="within"),
    "torch_whole_between": Case(torch=True, made="between"),
    "graph_device": Case(Part((*cupti.DEVICE, GRAPH))),
    "graph_calls": Case(Part((*_CALLS, GRAPH))),
    "graph_external": Case(Part((cupti.KERNEL, cupti.EXTERNAL, GRAPH))),
    "graph_alone_within": Case(Part((GRAPH,)), made="within"),
    "graph_first": Case(Part((GRAPH, *cupti.ALL))),
    "all_graph": Case(Part((*cupti.ALL, GRAPH))),
}


def run() -> Result:
    """All cases, and the stacks of those that died."""
    result = Result("whole", machine.describe())
    deadline = time.monotonic() + SECONDS
    names = list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        for at in range(0, len(names), TOGETHER):
            _together(names[at : at + TOGETHER], Path(folder), deadline, result)
    dead = [name for name, found in result.data.items() if found["ended"] != "exit 0"]
    for name in dead[:DEBUGGED]:
        result.data[name]["stack"] = stack = _debugged(name, deadline)
        print(f"whole: {name} stack:\n{stack[-3500:]}", flush=True)
    return result


def judge(name: str, found: dict[str, Any]) -> Check:
    """Whether the job lives and its graph was seen; recorded by nodes, that is promised, and otherwise asked."""
    stages = [stage["stage"] for stage in found["stages"]]
    lived = found["ended"] == "exit 0" and stages[-1:] == ["done"]
    right = all(stage.get("right", True) for stage in found["stages"])
    text = f"{found['ended']}, after {stages[-1:]}; {found['stages'][-2:]}; {found['said'][:900]}"
    promised = not CASES[name].whole
    return Check(f"{name}: lives", True if lived and right else (False if promised else None), text)


def _together(names: list[str], folder: Path, deadline: float, result: Result) -> None:
    """A few of them side by side: no time is measured."""
    if time.monotonic() > deadline - CASE_SECONDS / 2:
        result.checks += [Check(f"{name}: lives", None, "no time was left") for name in names]
        return
    started = {}
    for name in names:
        said = folder / name
        with said.open("w") as errors:
            pipe = subprocess.PIPE
            started[name] = subprocess.Popen(_command(name), cwd=ROOT, stdout=pipe, stderr=errors, text=True)
    until = time.monotonic() + CASE_SECONDS
    for name, process in started.items():
        found = result.data[name] = _outcome(process, folder / name, until)
        check = judge(name, found)
        result.checks.append(check)
        print(f"whole: {check.passed} {name}: {check.detail}", flush=True)


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", "bench.gpu.whole", name]


def _outcome(process: subprocess.Popen[str], said: Path, until: float) -> dict[str, Any]:
    ended, out = dying.outcome(process, max(1.0, until - time.monotonic()), aborts=True)
    stages = [json.loads(line) for line in out.splitlines() if line.startswith('{"stage"')]
    return {"ended": ended, "stages": stages, "said": said.read_text(errors="replace")[:6000]}


def _debugged(name: str, deadline: float) -> str:
    """Stacks where it dies, with what the debugger knows of the code there."""
    debugger = shutil.which(_DEBUGGER)
    left = min(deadline - time.monotonic(), CASE_SECONDS * 2)
    if debugger is None or left < CASE_SECONDS / 2:
        return "no debugger" if debugger is None else "no time was left"
    orders = [part for one in _DEBUGGER_ORDERS for part in ("-ex", one)]
    with tempfile.TemporaryFile("w+") as out:
        command = [debugger, "-batch", "-nx", *orders, "--args", *_command(name)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        said = [line for line in out.read().splitlines() if not line.startswith(("[New Thread", "[Thread 0x"))]
    return "\n".join(said)[-12_000:]


# --- in a process of its own ---


def main() -> None:
    """The case of the first argument."""
    dying.say_where()
    faulthandler.dump_traceback_later(CASE_SECONDS - 2, exit=False)
    case = CASES[sys.argv[1]]
    make = _torch_graph if case.torch else _graph()
    _tell("ready")
    replay: Callable[[], bool] | None = make() if case.made == "before" else None
    if replay is not None:
        _tell("replayed before", right=replay())
    for number in range(2):
        with _recording(case):
            _tell("records")
            if replay is None and case.made == "within":
                replay = make()
            if replay is not None:
                _tell("replayed within", right=replay())
            time.sleep(1.2)  # the flusher comes by meanwhile
        _tell("ended", number=number)
        replay = replay or make()
        _tell("replayed after", right=replay())
    _tell("done")
    sys.stdout.flush()
    os._exit(0)  # what CUPTI does at the end of a process is not asked


def _tell(stage: str, **more: Any) -> None:
    print(json.dumps({"stage": stage, **more}), flush=True)


def _recording(case: Case) -> AbstractContextManager[None]:
    return _ours(case.whole) if case.part is None else _theirs(case.part)


@contextmanager
def _ours(whole: bool) -> Iterator[None]:
    from profclient import _recorder, gpu

    _recorder.arm(arena_bytes=1 << 26, sources=8)
    gpu.start(graph_nodes=not whole)
    try:
        yield
    finally:
        report = gpu.stop()
        _recorder.disarm()
        _recorder.release()
    _tell("report", **{key: report.get(f"gpu.{key}", "") for key in ("state", "events", "device_events", "notes")})


@contextmanager
def _theirs(part: Part) -> Iterator[None]:
    session = cupti.Session(part)
    session.begin()
    try:
        yield
    finally:
        session.finish()
    _tell("report", bytes=session.bytes)


def _graph() -> Callable[[], Callable[[], bool]]:
    """A maker of graphs of the program of known truth: fifty kernels that add 1."""
    from bench.gpu.driver import Driver
    from bench.gpu.program import Program

    program = Program(Driver(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1")))
    return lambda: program.graph(REPLAYS)


def _torch_graph() -> Callable[[], bool]:
    """The job of bench/gpu/options.py; whether it computes right is not asked."""
    from bench.gpu.loops import LOOPS

    step = LOOPS["graph"]()

    def replay() -> bool:
        for _ in range(REPLAYS):
            step()
            time.sleep(0.001)  # as that job, which looks whether it is to end
        device.synchronize()
        return True

    return replay


if __name__ == "__main__":
    main()
