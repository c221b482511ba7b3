"""The meaning of a request for a process with a profiler server: pure arithmetic and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profd.limits import CAPTURE_WINDOW_MAX_NS, JAX_WINDOWS_MAX
from profd.model.capture import Options
from profd.model.traits import Traits
from profd.sources.base import Plan
from profd.sources.declaration import (
    BY_PROCESS,
    NUMBERS_NO_STEPS,
    SERVED,
    CommonAnswers,
    Declaration,
    Refuses,
    SamplingAnswers,
    TorchAnswers,
    Unserved,
    cannot_guard,
)

SECOND: Final = 1_000_000_000
WINDOW_NS: Final = SECOND // 2
"""Longest window of one request without --force: collecting takes the process 2.3-2.7 us and 440 bytes an event."""

WINDOW_LEAST_NS: Final = SECOND // 50
STOP_SECONDS: Final = 25.0  # for what a stopped window still brings: less than the manager waits
_LATENCY_NS: Final = SECOND // 20
_COLLECT_BASE_SECONDS: Final = 30.0
_COLLECT_PER_SECOND: Final = 15.0  # measured: 7 s for a second of the smallest operations there are
_SPARE_NS: Final = 10 * SECOND
_EVENTS_PER_SECOND: Final = 2_300_000  # the most that was measured
_TARGET_BYTES_PER_EVENT: Final = 440
_BYTES_PER_EVENT: Final = 30  # of XSpace; 22 to 50 were measured

DECLARATION: Final = Declaration(
    name="jax",
    rank=30,
    common=CommonAnswers(
        duration_ns=BY_PROCESS,
        iterations=Refuses("the profiler server of JAX and TensorFlow counts no iterations; give --duration"),
        start_at_ns=SERVED,
        begin_step=NUMBERS_NO_STEPS,
        at_least_ns=SERVED,  # there are no iterations that could be over before
        stacks=SERVED,
        c_calls=BY_PROCESS,
        max_overhead=cannot_guard("jax"),
    ),
    torch=TorchAnswers(
        torch=Unserved("the profiler server records operators of JAX and TensorFlow only"),
        shapes=Unserved("the profiler server records no input shapes of its own"),
        memory=Unserved("the profiler server records allocations of TensorFlow only, unasked"),
        modules=Unserved("the profiler server records name scopes, not modules"),
        flops=Unserved("the profiler server records none on demand"),
        gpu_fallback=Unserved("CUDA events are put around PyTorch's operators only"),
    ),
    sampling=SamplingAnswers(
        sample_hz=Unserved("the profiler server records every operation, it does not sample"),
        native=Unserved("it records Python stacks only; --source pyspy --native samples native ones"),
    ),
    server=SERVED,
    traits=Traits(samples_beside=False),
)


@dataclass(frozen=True, slots=True)
class Windows:
    """How a recording is cut into windows. Times in ns."""

    total_ns: int  # from the first window's begin
    one_ns: int  # longest of one request
    period_ns: int  # from the begin of a window to the next, at least
    open_ended: bool = False
    collect_ns: int = 0  # for handing over a window; 0: by its length
    last_ns: int = 0  # of what came last are kept; 0: all of it

    @property
    def single(self) -> bool:
        """One request brings all."""
        return self.total_ns <= self.one_ns

    @property
    def count(self) -> int:
        """The most there can be."""
        return min(JAX_WINDOWS_MAX, -(-self.total_ns // self.period_ns))

    def collect_seconds(self, window_ns: int) -> float:
        """How long the process may take to hand over a window."""
        if self.collect_ns:
            return self.collect_ns / SECOND
        return _COLLECT_BASE_SECONDS + _COLLECT_PER_SECOND * window_ns / SECOND


def windows(options: Options) -> Windows:
    """One window up to 500 ms, or of any length with --force; else repeated ones, spread where they would be many."""
    patience = options.collect_timeout_ns
    if options.last_ns:
        total, open_ended = options.duration_ns or CAPTURE_WINDOW_MAX_NS, not options.duration_ns
        one = min(total, options.last_ns if options.force else min(options.last_ns, WINDOW_NS))
        return Windows(total, one, one, open_ended, patience, options.last_ns)
    if not options.duration_ns:
        return Windows(CAPTURE_WINDOW_MAX_NS, WINDOW_NS, WINDOW_NS, open_ended=True, collect_ns=patience)
    if options.force or options.duration_ns <= WINDOW_NS:
        return Windows(options.duration_ns, options.duration_ns, options.duration_ns, collect_ns=patience)
    period = max(WINDOW_NS, -(-options.duration_ns // JAX_WINDOWS_MAX))
    return Windows(options.duration_ns, WINDOW_NS, period, collect_ns=patience)


def plan(options: Options, bytes_per_ns: float | None, ahead_ns: int) -> Plan:
    """Answer `Source.plan`. `bytes_per_ns`: of an earlier trace of the process; `ahead_ns`: until the agreed start."""
    cut = windows(options)
    recorded_ns = min(cut.last_ns + cut.one_ns if cut.last_ns else cut.count * cut.one_ns, cut.total_ns)
    events = memory = None
    if bytes_per_ns is not None:
        events = round(bytes_per_ns * recorded_ns / _BYTES_PER_EVENT)
    if not cut.open_ended or cut.last_ns:
        a_window = cut.one_ns * _EVENTS_PER_SECOND / SECOND
        if bytes_per_ns is not None:
            a_window = min(a_window, bytes_per_ns * cut.one_ns / _BYTES_PER_EVENT)
        memory = round(a_window * _TARGET_BYTES_PER_EVENT)
    longest = cut.total_ns + cut.one_ns + round(cut.collect_seconds(cut.one_ns) * SECOND) + _SPARE_NS
    return Plan(
        serves=True,
        unserved=_unserved(options, cut),
        latency_ns=max(_LATENCY_NS, ahead_ns),
        events=None if cut.open_ended and not cut.last_ns else events,
        memory_bytes=memory,
        trace_bytes=0,
        risks=tuple(_risks(options, cut)),
        deadline_ns=ahead_ns + longest,
    )


def _unserved(options: Options, cut: Windows) -> dict[str, str]:
    """Options that the rest of the request leaves no room for, by name, with the reason."""
    missing = {}
    if not cut.single and not cut.open_ended and not cut.last_ns:
        missing["duration_ns"] = (
            f"recorded as up to {cut.count} windows of {WINDOW_NS // 1_000_000} ms with gaps between them, "
            "because handing over long ones stalls the process (--force records one)"
        )
    if not options.stacks:
        missing["c_calls"] = "the profiler server records C calls together with stacks; add --stacks"
    return missing


def _risks(options: Options, cut: Windows) -> list[str]:
    seconds = cut.one_ns / SECOND
    most = seconds * _EVENTS_PER_SECOND
    said = [
        f"after each window of {seconds:g} s the process collects 2.3-2.7 us and 440 bytes an event: "
        f"at worst (the smallest operations) {most * 2.7e-6:.1f} s and {most * _TARGET_BYTES_PER_EVENT / 1e6:.0f} MB"
    ]
    if cut.last_ns:
        said.append(
            "last: the process records until it is told to end; if profd is killed meanwhile, the next profd that "
            "starts on the same state directory tells it"
        )
    if options.stacks:
        said.append("stacks: every Python call is recorded, and many small calls become slower in the window")
    return said
