"""(h) CUPTI leaves the process at the end of a recording (`[gpu] detach`): stress, and CUDA graphs; at most 90 s.

Each case is a process of its own, whose death is a result; all of them run side by side, since no time is measured.

`python -m bench.gpu.detach CASE` is one of these processes: a line of JSON for each thing that it has done.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.gpu import device, dying, machine
from bench.gpu.results import Check, Result
from bench.measure import ROOT

SECONDS = device.of(90, rehearsed=300)
RECORDINGS = device.of(40, rehearsed=3)
REPLAYS = 50
NODES = 20  # of a graph
STEPS = device.of(50, rehearsed=3)
_MADE_UNSEEN = ("graph_before", "graph_between", "graph_after_detach")  # whether they live is the question
_SEEN = ("graph_replayed", "graph_made")  # the guard must see these, and keep CUPTI


def run() -> Result:
    """All cases."""
    result = Result("detach", machine.describe())
    deadline = time.monotonic() + SECONDS
    with contextlib.ExitStack() as files:
        started = {case: _start(case, files.enter_context(tempfile.TemporaryFile("w+"))) for case in CASES}
        for case, (process, said) in started.items():
            outcome = result.data[case] = _outcome(process, said, deadline)
            check = judge(case, outcome)
            result.checks.append(check)
            print(f"detach: {case} {outcome['ended']}, {check.detail}", flush=True)
    return result


def judge(case: str, outcome: dict[str, Any]) -> Check:
    """Whether it is as promised; None where nothing was promised."""
    stages = outcome["stages"]
    last = stages[-1] if stages else {}
    text = f"{outcome['ended']}; last {last}; {outcome['said']}"
    right = all(stage.get("right", True) and stage["stage"] != "thread failed" for stage in stages)
    lived = outcome["ended"] == "exit 0" and last.get("stage") == "done" and right
    after = [stage["after"] for stage in stages if "after" in stage]
    if case in _MADE_UNSEEN:
        return Check(f"{case}: lives", True if lived else None, f"{text}; cupti_after {after}")
    if case in _SEEN:
        return Check(f"{case}: CUPTI is kept", lived and "graphs" in after, f"{text}; cupti_after {after}")
    every = all(stage["kernels"] > 0 for stage in stages if stage["stage"] == "recorded")
    gone = sum(one == "gone" for one in after)
    return Check(f"{case}: lives, every recording has kernels", lived and every, f"{text}; gone {gone} of {len(after)}")


def _start(case: str, said: Any) -> tuple[subprocess.Popen[str], Any]:
    command = [sys.executable, "-m", "bench.gpu.detach", case]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=said, text=True), said


def _outcome(process: subprocess.Popen[str], said: Any, deadline: float) -> dict[str, Any]:
    """How it ended, and what it had done by then."""
    ended, out = dying.outcome(process, max(1.0, deadline - time.monotonic()))
    said.seek(0)
    stages = [json.loads(line) for line in out.splitlines() if line.startswith('{"stage"')]
    return {"ended": ended, "stages": stages, "said": said.read()[-400:]}


# --- in processes of their own ---


def main() -> None:
    """The case of the first argument."""
    CASES[sys.argv[1]]()
    _tell("done")


def _tell(stage: str, **more: Any) -> None:
    print(json.dumps({"stage": stage, **more}), flush=True)


def no_graphs() -> None:
    """A loop, recorded twice."""
    step = _tiny()
    for _ in range(2):
        _record(step, step)
    _profile(step)


def graph_before() -> None:
    """Its graph is older than any recording, and is replayed after one, but not within."""
    step, graph = _tiny(), _Graph()
    graph.replay("before")
    _record(step, step)
    graph.replay("after")
    _record(step, step)
    graph.replay("after the second")


def graph_replayed() -> None:
    """The graph is older, and is replayed within."""
    step, graph = _tiny(), _Graph()
    graph.replay("before")
    _record(lambda: graph.replay("within"), step)
    graph.replay("after")
    _record(step, step)
    graph.replay("after the second")


def graph_made() -> None:
    """The graph is made within."""
    step = _tiny()
    made: list[_Graph] = []
    _record(lambda: made.append(_Graph()), step)
    made[0].replay("after")


def graph_between() -> None:
    """The graph is made after a recording that left CUPTI in the process; the next one takes it out."""
    step = _tiny()
    _record(step, None)
    graph = _Graph()
    graph.replay("between")
    _record(step, step)
    graph.replay("after")


def graph_after_detach() -> None:
    """The graph is made after CUPTI has left, and is there when it comes and leaves again."""
    step = _tiny()
    _record(step, step)
    graph = _Graph()
    graph.replay("between")
    _record(step, step)
    graph.replay("after")


def stress() -> None:
    """Many recordings, while four threads use CUDA on streams of their own."""
    step = _tiny()
    step()
    with _threads() as counts:
        for _ in range(RECORDINGS):
            before = sum(counts)
            _record(lambda: time.sleep(0.05), lambda: time.sleep(0.001))
            if sum(counts) == before:
                _tell("stopped", counts=list(counts))
    _profile(step)


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (graph_before, graph_between, graph_after_detach, graph_replayed, graph_made, no_graphs, stress)
}


def _record(work: Callable[[], Any], goes_on: Callable[[], None] | None) -> None:
    """One recording of this work. `goes_on`: CUPTI leaves while these steps are made; None: it stays."""
    from profclient import gpu

    from bench.gpu.overhead import armed

    _tell("records")
    begin = time.perf_counter()
    with armed(goes_on):
        work()
        device.synchronize()
    took = time.perf_counter() - begin
    report = gpu.report()
    after, kernels = report["gpu.cupti_after"], int(report["gpu.device_events"])
    told = {"detach": goes_on is not None, "state": report["gpu.state"], "notes": report.get("gpu.notes", "")}
    _tell("recorded", after=after, kernels=kernels, seconds=round(took, 3), **told)


def _profile(step: Callable[[], None]) -> None:
    """PyTorch's own profiler, afterwards."""
    from torch.profiler import profile

    with profile(activities=device.profiled()) as theirs:
        step()
        device.synchronize()
    _tell("torch.profiler", events=len(theirs.events()))


def _tiny() -> Callable[[], None]:
    import torch

    number = torch.zeros(1, device=device.NAME)

    def step() -> None:
        for _ in range(STEPS):
            number.add_(1)

    made = device.launching(step)
    made()
    device.synchronize()
    return made


class _Graph:
    """Twenty launches as a CUDA graph; in a rehearsal the stand-in is told of one."""

    def __init__(self) -> None:
        import torch

        self._number = torch.zeros(1, device=device.NAME)
        self._graph = None
        if not device.REHEARSAL:
            device.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._launches()
        else:
            self._rehearsed()
        _tell("graph made")

    def _launches(self) -> None:
        for _ in range(NODES):
            self._number.add_(1)

    def _rehearsed(self) -> None:
        ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"]).fake_graph(b"rehearsed", 7, NODES)

    def replay(self, when: str) -> None:
        """Often. What it computed is looked at."""
        begin = float(self._number.item())
        for _ in range(REPLAYS):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._rehearsed()
                self._launches()
        device.synchronize()
        right = float(self._number.item()) - begin == REPLAYS * NODES
        _tell(f"replayed {when}", right=right)


@contextlib.contextmanager
def _threads() -> Iterator[list[int]]:
    """Four kinds of work, until the end. How much each has done."""
    import torch

    counts, over = [0] * 4, threading.Event()
    some = torch.ones(256, 256, device=device.NAME)
    host = torch.ones(1 << 18, pin_memory=not device.REHEARSAL)
    kinds: list[Callable[[], Any]] = [
        device.launching(lambda: some.add(1)),
        lambda: some @ some,
        lambda: host.to(device.NAME, non_blocking=True, copy=True),
        lambda: some.sum().item(),
    ]

    def works(number: int) -> None:
        stream = contextlib.nullcontext() if device.REHEARSAL else torch.cuda.stream(torch.cuda.Stream())
        try:
            with stream:
                while not over.is_set():
                    kinds[number]()
                    counts[number] += 1
        except RuntimeError as error:
            _tell("thread failed", thread=number, error=str(error)[:300])

    threads = [threading.Thread(target=works, args=(number,)) for number in range(len(kinds))]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        over.set()
        for thread in threads:
            thread.join()
        device.synchronize()
        _tell("threads", counts=counts)


if __name__ == "__main__":
    main()
