"""(c) What recording costs a step: interleaved blocks, each beside blocks of the same process with nothing on.

Kineto on demand has processes of its own (bench/gpu/on_demand.py): one that waits for a daemon is not one without.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from bench.gpu import device, machine, on_demand
from bench.gpu.loops import LOOPS
from bench.gpu.results import Check, Result
from bench.gpu.statistics import Ratio, interval, noise_floor, plan, ratios
from bench.measure import ChildFailed, child

BLOCKS = device.of(8, rehearsed=2)  # of each mode
STEPS = {
    loop: device.of(count, rehearsed=4) for loop, count in (("launch_bound", 30), ("gpu_bound", 10), ("graph", 200))
}
WARM_UP = device.of(20, rehearsed=2)
PAIRS = device.of(3, rehearsed=1)  # of processes, for what cannot be turned off again
ARENA_BYTES = 256 << 20
MODES = ("off", "armed", "profiler")
IDLE_MOST = 1.01  # injected and idle, and after disarm
ARMED_MOST = 1.02  # on the loop that the GPU bounds


def run(loops: Iterable[str] = LOOPS if not device.REHEARSAL else ("graph",)) -> Result:
    """Every loop in processes of its own."""
    result = Result("overhead", machine.describe())
    for loop in loops:
        try:
            result.data[loop] = _of_loop(loop)
        except (ChildFailed, on_demand.NotRecorded) as error:
            result.checks.append(Check(f"{loop} ran", False, str(error)[-2000:]))
            continue
        result.checks += checks(loop, {name: Ratio(**one) for name, one in result.data[loop]["ratios"].items()})
    return result


def checks(loop: str, found: dict[str, Ratio]) -> list[Check]:
    """The promises of a loop. Below the noise floor nothing is claimed."""
    floor = noise_floor(found["off"])
    made = [Check(f"{loop}: noise", floor <= IDLE_MOST - 1, f"off to off within {floor:.2%}")]
    for mode in ("idle", "after", *(("after_detached",) if "after_detached" in found else ())):
        made.append(_at_most(f"{loop}: {mode}", found[mode], IDLE_MOST))
    if loop == "gpu_bound":
        made.append(_at_most(f"{loop}: armed", found["armed"], ARMED_MOST))
    if loop == "launch_bound":
        half = 1 + (found["profiler"].value - 1) / 2
        made.append(_at_most(f"{loop}: armed, half of what torch.profiler takes", found["armed"], half))
    return made


def _at_most(name: str, ratio: Ratio, most: float) -> Check:
    text = f"{ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f}), at most {most:.4f}"
    return Check(name, ratio.within(most), text)


def _of_loop(loop: str) -> dict[str, Any]:
    """Each ratio is printed when it is known: what was measured is not lost with the machine."""
    inside: dict[str, Any] = {}
    found: dict[str, Ratio] = {}

    def know(name: str, values: list[float]) -> None:
        found[name] = one = interval(values)
        print(f"overhead: {loop} {name} {one.value:.4f} ({one.low:.4f} to {one.high:.4f})", flush=True)

    for mode in MODES[:0:-1]:  # in processes of their own: torch.profiler keeps CUPTI
        seen = inside[mode] = child("bench.gpu.overhead:blocks", {"loop": loop, "mode": mode})["result"]
        for name, values in ratios(seen["order"], seen["times"]).items():
            know(name, values)
    after = child("bench.gpu.overhead:after_disarm", {"loop": loop})["result"]
    know("after", after["ratios"])
    if loop != "graph":  # dies of it (docs/gpu.md, what stays behind)
        know(
            "after_detached",
            child("bench.gpu.overhead:after_disarm", {"loop": loop, "detach": True})["result"]["ratios"],
        )
    know("idle", _pairs(loop))
    demanded = {way: on_demand.steps(loop, way) for way in on_demand.WAYS}
    for way, seen in demanded.items():
        know(way, ratios(seen["order"], seen["times"])[way])
    as_dict = {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in found.items()}
    first = after["first_arm_longest_step_s"]
    return {"ratios": as_dict, "blocks": inside, "first_arm_longest_step_s": first, "on_demand": demanded}


def _pairs(loop: str) -> list[float]:
    """Injected and idle by plain: processes that take turns, since an injection cannot be taken back."""
    from profclient.agent import COLLECTOR

    found = []
    for _ in range(PAIRS):
        plain, injected = (
            child("bench.gpu.overhead:alone", {"loop": loop}, environment=variables)["result"]
            for variables in ({}, {"CUDA_INJECTION64_PATH": COLLECTOR})
        )
        found.append(injected / plain)
    return found


# --- in processes of their own ---


def blocks(loop: str, mode: str) -> dict[str, Any]:
    """Median step seconds of each block, in the order in which they ran."""
    step = _warm(loop)
    order = plan(("off", mode), BLOCKS)
    times, longest = [], {"off": 0.0, mode: 0.0}
    for now in order:
        with _ON[now]():
            taken = _steps(step, STEPS[loop])
        times.append(statistics.median(taken))
        longest[now] = max(longest[now], *taken)
    return {"order": order, "times": times, "longest_step_s": longest}


def after_disarm(loop: str, detach: bool = False) -> dict[str, Any]:
    """Blocks after a recording by those before the first one, and the longest step while it began.

    `detach`: CUPTI leaves the process at the end, in one of the steps that go on meanwhile.
    """
    step = _warm(loop)
    before = [statistics.median(_steps(step, STEPS[loop])) for _ in range(BLOCKS)]
    with armed(step if detach else None):
        first = max(_steps(step, STEPS[loop]))
    after = [statistics.median(_steps(step, STEPS[loop])) for _ in range(BLOCKS)]
    return {"ratios": [one / statistics.median(before) for one in after], "first_arm_longest_step_s": first}


def alone(loop: str) -> float:
    """Median step seconds of a process that nobody records."""
    step = _warm(loop)
    return statistics.median([statistics.median(_steps(step, STEPS[loop])) for _ in range(BLOCKS // 2)])


@contextlib.contextmanager
def armed(goes_on: Callable[[], None] | None = None) -> Iterator[None]:
    """Our collector records. `goes_on`: CUPTI leaves the process while these steps are made."""
    from profclient import _recorder, gpu

    _recorder.arm(arena_bytes=ARENA_BYTES, sources=8)
    gpu.start(detach=goes_on is not None)
    try:
        yield
    finally:
        ends = threading.Thread(target=gpu.stop)
        ends.start()
        while goes_on is not None and ends.is_alive():
            goes_on()
        ends.join()
        _recorder.disarm()
        _recorder.release()


@contextlib.contextmanager
def profiler() -> Iterator[None]:
    """torch.profiler records CPU and CUDA; its file is not written."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=list({ProfilerActivity.CPU, *device.profiled()})):
        yield


_ON: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "off": contextlib.nullcontext,
    "armed": armed,
    "profiler": profiler,
}


def _warm(loop: str) -> Callable[[], None]:
    step = LOOPS[loop]()
    _steps(step, WARM_UP)  # loads the kernels; loading all of torch's (EAGER) takes longer than the measurement
    return step


def _steps(step: Callable[[], None], count: int) -> list[float]:
    """Seconds of each step, until the GPU has done it."""
    taken = []
    device.synchronize()
    for _ in range(count):
        begin = time.perf_counter()
        step()
        device.synchronize()
        taken.append(time.perf_counter() - begin)
    return taken
