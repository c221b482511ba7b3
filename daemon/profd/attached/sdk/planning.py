"""The meaning of a request for an attached process: pure arithmetic and sentences."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from profd.attached.agents.agent import STEPS_WORD
from profd.attached.agents.protocol import Hello
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.model.capture import Options, Reason
from profd.model.shortfall import NO_OPERATORS, OBSERVER_FIX
from profd.model.traits import ATTACHED
from profd.sources.base import Plan
from profd.sources.declaration import (
    BY_PROCESS,
    SERVED,
    ByProcess,
    CommonAnswers,
    Declaration,
    SamplingAnswers,
    TorchAnswers,
    Unserved,
    without_server,
)

SECOND: Final = 1_000_000_000
ARM_SECONDS: Final = 20.0  # for the answer to ARM
STOP_SECONDS: Final = 5.0  # for the answer to STOP; a process that is stopped gives none
TORCH_STOP_SECONDS: Final = 65.0  # where torch's own profiler has to be stopped and write its file first
DRAIN_SECONDS: Final = 20.0  # for any of what is left in the arena to arrive
DRAIN_ROUNDS: Final = 6  # of that, while some does
EVENT_BYTES: Final = 5  # in the journal
_ESTIMATED_MAX: Final = 1 << 60  # so that what follows of it has 64 bits
_LATENCY_NS: Final = 2_000_000
_SPARE_NS: Final = 10 * SECOND

_NO_TORCH: Final = "this process has not imported torch"
_PYTHON_CALLS: Final = (
    "stacks: every Python call is recorded, which takes about 0.1 us a call, and on Python 3.11 every bytecode "
    "becomes slower too"
)
_CRASH: Final = (
    "torch's own profiler can crash the job: torch frees what other threads still write to when it is stopped while "
    "operators run on them (SIGSEGV)"
)
_TORCH_STOP: Final = (
    "at its end torch's own profiler holds the GIL for about 4.5 us an event, where there is no observer"
)
_CUDA_EVENTS: Final = (
    "gpu_fallback: where CUPTI records nothing, CUDA gets two events for each operator, and the end waits for the "
    "device, which ends a job that captures a CUDA graph meanwhile (docs/torch.md)"
)
_BREAKS_CAPTURES: Final = (
    "it ended a job of PyTorch that captured CUDA graphs meanwhile (docs/torch.md); --force times operators anyway"
)
_WHOLE: Final = (
    'cuda: gpu.cuda_graphs = "whole" is not followed and each node is recorded, because CUPTI (seen in CUDA 13.0) ends '
    "a job that replays a CUDA graph made before the recording (docs/gpu.md); set it to nodes"
)

DECLARATION: Final = Declaration(
    name="sdk",
    rank=10,
    common=CommonAnswers(
        duration_ns=SERVED,
        iterations=SERVED,
        start_at_ns=SERVED,
        begin_step=SERVED,
        at_least_ns=SERVED,
        stacks=BY_PROCESS,
        c_calls=BY_PROCESS,
        max_overhead=SERVED,
    ),
    torch=TorchAnswers(
        torch=ByProcess(by_default=True),  # who profiles PyTorch means its operators
        shapes=BY_PROCESS,
        memory=BY_PROCESS,
        modules=BY_PROCESS,
        flops=BY_PROCESS,
        gpu_fallback=BY_PROCESS,
    ),
    sampling=SamplingAnswers(
        sample_hz=BY_PROCESS,
        native=Unserved("it records Python stacks only; --source pyspy --native samples native ones"),
    ),
    server=without_server("sdk"),
    traits=ATTACHED,
    self_disarming=True,
    attached=True,
)


@dataclass(frozen=True, slots=True)
class Collecting:
    """How CUPTI's records are collected, as the daemon's settings have it."""

    whole_graphs: bool = False  # a CUDA graph as one: wished, and refused
    cupti_python: bool = False  # through that package, which can deadlock
    detach: bool = False  # CUPTI leaves the process at the end

    def word(self) -> str:
        """In the agent protocol's words."""
        words = {"cupti-python": self.cupti_python, "cupti-detach": self.detach}  # never "whole": see _WHOLE
        asked = [word for word, on in words.items() if on]
        return f"cuda:{'+'.join(asked)}" if asked else "cuda"

    def refused(self) -> tuple[str, ...]:
        """Sentences about settings that are not followed, because a job could die of them."""
        return (_WHOLE,) if self.whole_graphs else ()


_ORDINARY: Final = Collecting()


def words(
    options: Options,
    can: Collection[str] = ("ranges",),
    *,
    cuda: bool = False,
    collecting: Collecting = _ORDINARY,
    torch: bool = False,
) -> tuple[str, ...]:
    """The options in the agent protocol's words, for an agent that `can`.

    `cuda`: record what CUPTI says. `torch`: it has been imported. An older agent that is not told to use the observer
    or nothing would use torch's own profiler, which can crash the job.
    """
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
            ("gpu_fallback", options.gpu_fallback and options.force),
        )
        if on
    ]
    way = options.torch or "auto"
    return (*asked, f"torch:{'observer' if torch and way == 'auto' else way}")


@dataclass(frozen=True, slots=True)
class EarlierTrace:
    """Contents and cost of an earlier trace of a process, per ns of its window."""

    events: float
    seconds: float  # spent recording


def alike(options: Options) -> frozenset[str]:
    """The options that must be the same in two requests for one to predict contents and cost of the other."""
    return frozenset(words(options)) - {"force"}


def plan(options: Options, hello: Hello, arena_bytes: int, rate: EarlierTrace | None, fix: str = OBSERVER_FIX) -> Plan:
    """Answer `Source.plan`. `rate`: of an earlier trace of the process with like options, None if there is none.

    `fix`: what brings an observer to a process that has none.
    """
    refusal = _refusal(options, hello.can, fix)
    if refusal:
        return Plan(False, refusal, Reason.NOT_HONOURED)
    window_ns = options.duration_ns or CAPTURE_WINDOW_MAX_NS
    stop_s, drain_s = stop_seconds(options, hello), DRAIN_SECONDS * DRAIN_ROUNDS
    events = cost_ns = None
    if rate is not None and options.duration_ns:
        # What both times of a window are, the process says: one of a nanosecond is no reason to fail.
        events = min(round(rate.events * options.duration_ns), _ESTIMATED_MAX)
        cost_ns = min(round(rate.seconds * SECOND * options.duration_ns), _ESTIMATED_MAX)
    ahead_ns = max(0, options.start_at_ns - time.time_ns()) if options.start_at_ns is not None else 0
    return Plan(
        serves=True,
        unserved=_unserved(options, hello, fix),
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
    waits = options.gpu_fallback and options.force
    return TORCH_STOP_SECONDS if waits or uses_torch_profiler(options, hello) else STOP_SECONDS


def uses_torch_profiler(options: Options, hello: Hello) -> bool:
    """Operators would be recorded by torch's own profiler."""
    return options.torch == "profiler" and "torch" in hello.can and has_torch(hello)


def has_torch(hello: Hello) -> bool:
    """It has imported torch."""
    return hello.framework.startswith("torch")


def lacks_observer(options: Options, hello: Hello) -> bool:
    """Operators would be missing for want of an observer: what else can be had is to stand in for them."""
    return has_torch(hello) and "observer" not in hello.can and options.torch in ("", "auto")


def unasked(sentence: str, options: Options, hello: Hello) -> bool:
    """An agent's word about operators that nobody asked for, and that a process without PyTorch cannot have."""
    return sentence.startswith("torch: ") and not options.torch and not has_torch(hello)


def replaced(sentence: str, fix: str) -> str:
    """An agent's word about missing operators, with the daemon's word of how to get them."""
    return sentence.replace(OBSERVER_FIX, fix)


def _refusal(options: Options, can: Collection[str], fix: str) -> str:
    if options.torch == "observer" and "observer" not in can:
        return f"the process has no observer of PyTorch's operators; {fix}"
    if options.torch == "profiler" and "torch" not in can:
        return "the process has not imported torch, or its profiler cannot be used from its agent"
    if options.torch == "profiler" and not options.force:
        return f"{_CRASH}; the observer is safe ({fix}), --force uses torch's own profiler all the same"
    if options.begin_step is not None and STEPS_WORD not in can:
        return "the profclient in the process is of an earlier build, which cannot begin at a step; leave --at-step out"
    return ""


def _unserved(options: Options, hello: Hello, fix: str) -> dict[str, str]:
    """Options that this process cannot serve, by name, with the reason."""
    can, torch = hello.can, has_torch(hello)
    operators = "observer" in can or uses_torch_profiler(options, hello)
    missing = {"torch": f"{NO_OPERATORS.removeprefix('torch: ')} ({fix})"} if lacks_observer(options, hello) else {}
    for lacking, option, why in (
        ("stacks" not in can, "stacks", "its agent has no tracer of Python calls"),
        ("stacks" not in can, "c_calls", "its agent has no tracer of Python calls"),
        (not options.stacks, "c_calls", "C calls are recorded together with stacks; add --stacks"),
        (not torch, "shapes", _NO_TORCH),
        (not operators, "shapes", f"no operators are recorded; {fix}"),
        (not torch, "memory", _NO_TORCH),
        ("observer" not in can, "memory", f"needs the observer; {fix}"),
        ("modules" not in can, "modules", "its agent cannot see modules"),
        (not torch, "flops", _NO_TORCH),
        (not operators, "flops", f"no operators are recorded; {fix}"),
        ("observer" not in can, "gpu_fallback", f"needs the observer; {fix}"),
        (not options.force, "gpu_fallback", _BREAKS_CAPTURES),
    ):
        if lacking:
            missing.setdefault(option, why)
    return missing


def _risks(options: Options, hello: Hello) -> list[str]:
    said = []
    if options.stacks or options.modules:
        said.append(_PYTHON_CALLS)
    if uses_torch_profiler(options, hello):
        said += [_CRASH, _TORCH_STOP]
    if options.gpu_fallback and options.force:
        said.append(_CUDA_EVENTS)
    return said
