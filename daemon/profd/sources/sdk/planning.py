"""What a request would mean for an attached process: pure arithmetic and sentences."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from profd.agents.protocol import Hello
from profd.capture.model import Options, Reason
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.sources.base import Plan

SECOND: Final = 1_000_000_000
ARM_SECONDS: Final = 20.0  # for the answer to ARM
STOP_SECONDS: Final = 5.0  # for the answer to STOP; a process that is stopped gives none
TORCH_STOP_SECONDS: Final = 65.0  # where torch's own profiler has to be stopped and write its file first
DRAIN_SECONDS: Final = 20.0  # for any of what is left in the arena to arrive
DRAIN_ROUNDS: Final = 6  # of that, while some does
EVENT_BYTES: Final = 5  # in the journal
_LATENCY_NS: Final = 2_000_000
_SPARE_NS: Final = 10 * SECOND

OBSERVER_FIX: Final = "build it once for this torch: profctl torch build"
_NO_TORCH: Final = "this process has not imported torch"
_PYTHON_CALLS: Final = (
    "stacks: every Python call is recorded, which takes about 0.1 us a call, and on Python 3.11 every bytecode "
    "becomes slower too"
)
_TORCH_STOP: Final = (
    "PyTorch is recorded by its own profiler (there is no observer for this torch): at the end it holds the GIL "
    "for about 4.5 us an event"
)
_CUDA_EVENTS: Final = (
    "gpu_fallback: where CUPTI records nothing, CUDA gets two events for each operator, and the end waits for the "
    "device; what that costs was never measured on a GPU"
)


@dataclass(frozen=True, slots=True)
class Collecting:
    """How CUPTI's records are collected, as the daemon's settings have it."""

    whole_graphs: bool = False  # a CUDA graph as one, not its nodes
    cupti_python: bool = False  # through that package, which can deadlock

    def word(self) -> str:
        """In the agent protocol's words."""
        asked = [word for word, on in (("whole", self.whole_graphs), ("cupti-python", self.cupti_python)) if on]
        return f"cuda:{'+'.join(asked)}" if asked else "cuda"


_ORDINARY: Final = Collecting()


def words(
    options: Options, can: Collection[str] = ("ranges",), *, cuda: bool = False, collecting: Collecting = _ORDINARY
) -> tuple[str, ...]:
    """The options in the agent protocol's words, for an agent that `can`. `cuda`: record what CUPTI says."""
    collector = collecting.word()
    if "ranges" not in can:
        return (collector,)
    asked = [
        word
        for word, on in (
            ("ranges", True),
            (collector, cuda),
            ("shapes", options.shapes),
            ("stacks", options.stacks or options.modules),
            ("c_calls", options.c_calls),
            ("memory", options.memory),
            ("modules", options.modules),
            ("flops", options.flops),
            ("force", options.force),
            ("gpu_fallback", options.gpu_fallback),
        )
        if on
    ]
    return (*asked, f"torch:{options.torch or 'auto'}")


@dataclass(frozen=True, slots=True)
class Rate:
    """What an earlier trace of a process held and cost, per ns of its window."""

    events: float
    seconds: float  # spent recording


def alike(options: Options) -> frozenset[str]:
    """What must be the same in two requests for one to tell what the other will hold and cost."""
    return frozenset(words(options)) - {"force"}


def plan(options: Options, hello: Hello, arena_bytes: int, rate: Rate | None) -> Plan:
    """Answer `Source.plan`. `rate`: of an earlier trace of the process with like options, None if there is none."""
    refusal = _refusal(options, hello.can)
    if refusal:
        return Plan(False, refusal, Reason.NOT_HONOURED)
    window_ns = options.duration_ns or CAPTURE_WINDOW_MAX_NS
    stop_s, drain_s = stop_seconds(options, hello), DRAIN_SECONDS * DRAIN_ROUNDS
    events = cost_ns = None
    if rate is not None and options.duration_ns:
        events = round(rate.events * options.duration_ns)
        cost_ns = round(rate.seconds * SECOND * options.duration_ns)
    ahead_ns = max(0, options.start_at_ns - time.time_ns()) if options.start_at_ns is not None else 0
    return Plan(
        serves=True,
        not_honoured=tuple(_not_honoured(options, hello)),
        latency_ns=_LATENCY_NS + ahead_ns,
        events=events,
        memory_bytes=arena_bytes,
        trace_bytes=None if events is None else events * EVENT_BYTES,
        cost_ns=cost_ns,
        risks=tuple(_risks(options, hello)),
        # The manager adds what lies ahead of an agreed start itself.
        deadline_ns=window_ns + round((ARM_SECONDS + stop_s + drain_s) * SECOND) + _SPARE_NS,
        stop_ns=round((stop_s + drain_s) * SECOND) + _SPARE_NS,
    )


def stop_seconds(options: Options, hello: Hello) -> float:
    """How long the answer to STOP may take."""
    return TORCH_STOP_SECONDS if options.gpu_fallback or uses_torch_profiler(options, hello) else STOP_SECONDS


def uses_torch_profiler(options: Options, hello: Hello) -> bool:
    """Operators would be recorded by torch's own profiler."""
    if "torch" not in hello.can or not hello.framework.startswith("torch") or options.torch == "observer":
        return False
    return options.torch == "profiler" or "observer" not in hello.can


def _refusal(options: Options, can: Collection[str]) -> str:
    if options.torch == "observer" and "observer" not in can:
        return f"the process has no observer of PyTorch's operators; {OBSERVER_FIX}"
    if options.torch == "profiler" and "torch" not in can:
        return "the process has not imported torch, or its profiler cannot be used from its agent"
    return ""


def _not_honoured(options: Options, hello: Hello) -> list[str]:
    """What a request asks and this process cannot give, a sentence each that begins with the option's name."""
    can = hello.can
    torch = hello.framework.startswith("torch")
    operators = bool(can & {"torch", "observer"})
    missing = []
    for asked, option, why in (
        (options.stacks and "stacks" not in can, "stacks", "its agent has no tracer of Python calls"),
        (options.c_calls and not options.stacks, "c_calls", "C calls are recorded together with stacks; add --stacks"),
        (options.modules and "modules" not in can, "modules", "its agent cannot see modules"),
        (options.shapes and torch and not operators, "shapes", f"no recorder of PyTorch's operators; {OBSERVER_FIX}"),
        (options.flops and not operators, "flops", "no operators are recorded in this process"),
        (options.flops and operators and not torch, "flops", _NO_TORCH),
        (options.memory and not torch, "memory", _NO_TORCH),
        (options.memory and torch and "observer" not in can, "memory", f"needs the observer; {OBSERVER_FIX}"),
        (options.gpu_fallback and "observer" not in can, "gpu_fallback", f"needs the observer; {OBSERVER_FIX}"),
        (options.native, "native", "it records Python stacks only; --source pyspy --native samples native ones"),
    ):
        if asked:
            missing.append(f"{option}: {why}")
    return missing


def _risks(options: Options, hello: Hello) -> list[str]:
    said = []
    if options.stacks or options.modules:
        said.append(_PYTHON_CALLS)
    if uses_torch_profiler(options, hello):
        said.append(_TORCH_STOP)
    if options.gpu_fallback:
        said.append(_CUDA_EVENTS)
    return said
