"""Ranges from Python, ours and others', taking turns in one process. CPython 3.11 to 3.13."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench import floors
from bench.measure import SCRATCH

ARENA_BYTES = 4 << 20
PEERS = {  # how they get here: pip install --target .bench/NAME PACKAGE
    "viztracer": "viztracer",
    "opentelemetry": "opentelemetry-sdk",
}
Loop = Callable[[range], None]
Way = tuple[Callable[[], Any], Loop]  # what surrounds a loop, and the loop


def per_range(count: int, rounds: int, recording: bool, peers: bool) -> dict[str, float]:
    """Nanoseconds of CPU of one empty range, by way, net of the loop: the median over `rounds` of `count` ranges each.

    `peers`: of those instead of ours. Not in one process: what viztracer leaves behind slows every bytecode down.
    """
    ways = dict([("nothing", (_plain, _loop_of_nothing)), *(_peers if peers else _ours)(recording)])
    times: dict[str, list[float]] = {name: [] for name in ways}
    numbers = range(count)
    for _ in range(rounds):
        for name, (around, loop) in ways.items():
            with around():
                start = time.thread_time_ns()
                loop(numbers)
                times[name].append((time.thread_time_ns() - start) / count)
    medians = {name: statistics.median(found) for name, found in times.items()}
    empty = medians.pop("nothing")
    return {name: found - empty for name, found in medians.items()}


def missing() -> list[str]:
    """Peers that are not there, and how to get them."""
    return [
        f"{name} is not there: pip install --target .bench/{name} {package}"
        for name, package in PEERS.items()
        if not (SCRATCH / name).is_dir()
    ]


def _ours(recording: bool) -> Iterator[tuple[str, Way]]:
    floor = floors.extension("recorder")
    ours = _recorded if recording else _plain
    yield "bare pair", (_plain, _loop_of_calls(floor.begin, floor.end))
    yield "recording pair", (_armed(floor), _loop_of_calls(floor.record, floor.finish))
    yield "bare with", (_plain, _loop_of_reused(floor.nothing))
    from profclient import range_pop, range_push, record_function

    yield "pair", (ours, _loop_of_calls(range_push, range_pop))
    yield "with", (ours, _loop_of_with(record_function))
    yield "with, reused", (ours, _loop_of_reused(record_function("x")))
    yield "decorator", (ours, _loop_of_function(record_function("x")(_nothing)))
    yield "function", (_plain, _loop_of_function(_nothing))


def _peers(recording: bool) -> Iterator[tuple[str, Way]]:
    yield from _torch(recording)
    yield from _opentelemetry(recording)
    yield from _viztracer(recording)


# --- what surrounds a loop ---


@contextmanager
def _plain() -> Iterator[None]:
    yield


def _armed(floor: Any) -> Callable[[], Any]:
    @contextmanager
    def armed() -> Iterator[None]:
        floor.arm(True)
        try:
            yield
        finally:
            floor.arm(False)

    return armed


@contextmanager
def _recorded() -> Iterator[None]:
    from profclient import _recorder

    _recorder.arm(arena_bytes=ARENA_BYTES, strings_bytes=4096)
    _recorder.populate()
    try:
        yield
    finally:
        lost = sum(_recorder.totals().values()) - _recorder.totals()["recorded"]
        _recorder.disarm()
        while not _recorder.release():
            pass
        assert lost == 0, f"{lost} events were lost: the arena is too small for the bench"


# --- loops ---


def _nothing() -> None:
    pass


def _loop_of_nothing(numbers: range) -> None:
    for _ in numbers:
        pass


def _loop_of_calls(begin: Callable[[str], Any], end: Callable[[], Any]) -> Loop:
    def loop(numbers: range) -> None:
        b, e = begin, end
        for _ in numbers:
            b("x")
            e()

    return loop


def _loop_of_with(make: Callable[[str], Any]) -> Loop:
    def loop(numbers: range) -> None:
        m = make
        for _ in numbers:
            with m("x"):
                pass

    return loop


def _loop_of_reused(span: Any) -> Loop:
    def loop(numbers: range) -> None:
        s = span
        for _ in numbers:
            with s:
                pass

    return loop


def _loop_of_function(function: Callable[[], None]) -> Loop:
    def loop(numbers: range) -> None:
        f = function
        for _ in numbers:
            f()

    return loop


# --- peers ---


def _torch(recording: bool) -> Iterator[tuple[str, Way]]:
    try:
        import torch
    except ImportError:
        return

    @contextmanager
    def profiled() -> Iterator[None]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True):
            yield

    around = profiled if recording else _plain
    yield "torch record_function", (around, _loop_of_with(torch.profiler.record_function))
    fast = torch._C._profiler._RecordFunctionFast
    yield "torch _RecordFunctionFast", (around, _loop_of_with(fast))


def _viztracer(recording: bool) -> Iterator[tuple[str, Way]]:
    if not (SCRATCH / "viztracer").is_dir():
        return
    sys.path.append(str(SCRATCH / "viztracer"))
    from viztracer import VizTracer

    tracer = VizTracer(tracer_entries=1_000_000, ignore_c_function=True, verbose=0, max_stack_depth=0)

    @contextmanager
    def traced() -> Iterator[None]:
        tracer.start()
        try:
            yield
        finally:
            tracer.stop()
            tracer.clear()

    yield "viztracer log_event", (traced if recording else _plain, _loop_of_with(tracer.log_event))


def _opentelemetry(recording: bool) -> Iterator[tuple[str, Way]]:
    if not (SCRATCH / "opentelemetry").is_dir():
        return
    sys.path.append(str(SCRATCH / "opentelemetry"))
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("bench") if recording else trace.get_tracer("bench")
    yield "OpenTelemetry", (_plain, _loop_of_with(tracer.start_as_current_span))
