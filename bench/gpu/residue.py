"""(g) Which part of CUPTI leaves launches slower behind (docs/gpu.md, what stays behind): at most 110 s.

A process for each part: blocks of a loop of launches (bench/gpu/launches.py: C, pinned, the GPU's own time left out),
one recording with that part of CUPTI, blocks again. PyTorch takes no part: its loop's blocks varied by up to 38 %.
Processes get ready side by side, and are measured one after the other. Each part is printed as it is known.

`python -m bench.gpu.residue PART` is one of these processes: it says "ready", waits for a line, measures, prints JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from bench.gpu import cupti, device, machine
from bench.gpu.cupti import Part
from bench.gpu.launches import Launches
from bench.gpu.results import Check, Result
from bench.gpu.statistics import Ratio, interval
from bench.measure import ROOT

SECONDS = device.of(110, rehearsed=600)
ONE_SECONDS = device.of(25, rehearsed=120)  # of a process that is measured; one that hangs is a result
ROUNDS = device.of(2, rehearsed=1)
TOGETHER = device.of(5, rehearsed=2)  # processes that get ready side by side
BLOCKS = device.of(40, rehearsed=2)
WARM_UP = device.of(10, rehearsed=1)  # blocks that nobody looks at

PARTS: dict[str, Part | None] = {  # None: recorded otherwise, below; most telling first
    "nothing": None,
    "ours": None,
    "kernels": Part((cupti.KERNEL,)),
    "calls": Part((cupti.RUNTIME, cupti.DRIVER)),
    "all": Part(cupti.ALL),
    "finalize": Part(cupti.ALL, end="finalize"),
    "external": Part((cupti.EXTERNAL,)),
    "subscribe": Part(),
    "domains_off": Part(cupti.ALL, end="domains_off"),
    "ours_detached": None,
}


@dataclass(slots=True)
class _Seen:
    """Of one part, over all rounds."""

    ratios: list[float] = field(default_factory=list)  # of each block after, to the median of those before
    rounds: list[dict[str, Any]] = field(default_factory=list)
    failed: str = ""


@dataclass(slots=True)
class _Process:
    part: str
    popen: subprocess.Popen[str]
    errors: IO[str]


def run() -> Result:
    """All parts, as often as there is time for."""
    result = Result("residue", machine.describe())
    deadline = time.monotonic() + SECONDS
    seen = {part: _Seen() for part in PARTS}
    names = list(PARTS)
    for number in range(ROUNDS):
        order = names[::-1] if number % 2 else names
        for at in range(0, len(order), TOGETHER):
            _measure_together(order[at : at + TOGETHER], seen, deadline)
    for part, found in seen.items():
        result.checks.append(_check(part, found))
        if found.rounds:
            one = interval(found.ratios)
            ratio = {"value": one.value, "low": one.low, "high": one.high}
            result.data[part] = {"after": ratio, "rounds": found.rounds}
    return result


def _check(part: str, found: _Seen) -> Check:
    """That it was measured: how slow is a fact, and no promise."""
    if found.failed:
        return Check(f"{part}: measured", False, found.failed)
    if not found.rounds:
        return Check(f"{part}: measured", None, "no time was left")
    return Check(f"{part}: measured", True, _text(interval(found.ratios)))


def _text(one: Ratio) -> str:
    return f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"


def _measure_together(parts: list[str], seen: dict[str, _Seen], deadline: float) -> None:
    if time.monotonic() > deadline - ONE_SECONDS / 2:
        return
    with _started(parts) as processes:
        for process in processes:
            _ready(process, deadline)  # all of them: one that starts disturbs one that is measured
        for process in processes:
            left = deadline - time.monotonic()
            if left < ONE_SECONDS / 5:
                return
            _keep(process, seen[process.part], min(left, ONE_SECONDS))


def _keep(process: _Process, found: _Seen, seconds: float) -> None:
    try:
        said, _ = process.popen.communicate("go\n", timeout=seconds)
        told = json.loads(said.splitlines()[-1])
    except (subprocess.TimeoutExpired, OSError, ValueError, IndexError) as error:
        process.errors.seek(0)
        found.failed = f"{type(error).__name__}, exit {process.popen.poll()}: {process.errors.read()[-600:]}"
        print(f"residue: {process.part} FAILED {found.failed}", flush=True)
        return
    found.rounds.append(told)
    found.ratios += told["after"]
    text = f"residue: {process.part:<22} after {_text(interval(told['after']))}"
    while_ = f"while {told['while']:.3f}, launch {told['before_s'] * 1e6:.3f} us before (spread {told['spread']:.3f})"
    print(f"{text}  {while_}  {told['about']}", flush=True)


@contextlib.contextmanager
def _started(parts: list[str]) -> Iterator[list[_Process]]:
    processes = []
    with contextlib.ExitStack() as cleanup:
        for part in parts:
            errors = cleanup.enter_context(tempfile.TemporaryFile("w+"))
            command = [sys.executable, "-m", "bench.gpu.residue", part]
            pipe = subprocess.PIPE
            popen = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True)
            cleanup.callback(_end, popen)
            processes.append(_Process(part, popen, errors))
        yield processes


def _end(popen: subprocess.Popen[str]) -> None:
    popen.kill()
    popen.communicate()


def _ready(process: _Process, deadline: float) -> None:
    """One that does not come so far fails when it is asked."""
    assert process.popen.stdout is not None
    if select.select([process.popen.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        process.popen.stdout.readline()


# --- in a process of its own ---


def main() -> None:
    """One part: what its first argument says."""
    part = sys.argv[1]
    loop = Launches()
    loop.block()
    print("ready", flush=True)
    sys.stdin.readline()
    loop.pin()
    for _ in range(WARM_UP):
        loop.block()
    before = [loop.block() for _ in range(BLOCKS)]
    middle = statistics.median(before)
    while_, about = _recorded(part, loop)
    for _ in range(WARM_UP):
        loop.block()
    after = [loop.block() for _ in range(BLOCKS)]
    spread = (max(before) - min(before)) / middle
    told = {"before_s": middle, "spread": spread, "while": while_ / middle, "about": about}
    print(json.dumps({**told, "before": before, "after": [one / middle for one in after]}), flush=True)
    os._exit(0)  # what CUPTI does at the end of a process is not asked


def _recorded(part: str, loop: Launches) -> tuple[float, str]:
    """Median seconds of a launch within the recording, and what it saw."""
    wanted = PARTS[part]
    if wanted is not None:
        return _of_part(wanted, loop)
    if part == "nothing":
        return loop.block(), ""
    from profclient import gpu

    from bench.gpu.overhead import armed

    with contextlib.ExitStack() as recording:
        with loop.unpinned():
            recording.enter_context(armed(loop.once if part == "ours_detached" else None))
        while_ = loop.block()
    report = gpu.report()
    return while_, f"{report['gpu.state']}, {report['gpu.events']} events, cupti_after {report['gpu.cupti_after']}"


def _of_part(wanted: Part, loop: Launches) -> tuple[float, str]:
    session = cupti.Session(wanted)
    with loop.unpinned():  # CUPTI's own threads may go anywhere
        session.begin()
    while_ = session.pushed(loop.block)()
    told = ""
    try:
        session.finish()
    except cupti.CuptiError as error:  # of an order of ends that CUPTI does not take: what it leaves is asked anyway
        told = f", {error}"
    return while_, f"{session.bytes:,} bytes of records{told}"


if __name__ == "__main__":
    main()
