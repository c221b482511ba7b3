"""The meaning of a request for a process: pure arithmetic and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profd import limits
from profd.model.capture import Cost, Options, Reason
from profd.model.traits import Traits
from profd.sources.base import Plan
from profd.sources.declaration import (
    BY_PROCESS,
    NUMBERS_NO_STEPS,
    SERVED,
    CommonAnswers,
    Declaration,
    SamplingAnswers,
    TorchAnswers,
    Unserved,
    cannot_guard,
    without_server,
)
from profd.sources.kineto.config_text import FALLBACK_DURATION_MS
from profd.sources.kineto.registry import DEFAULT_PERIOD_NS, SILENT_NS
from profd.targets.process import Process

SECOND: Final = 1_000_000_000
LEAD_NS: Final = 2 * SECOND  # libkineto's own, between reading a config and opening the window
WRITING_BASE_NS: Final = 30 * SECOND
ATTEMPTS_MAX: Final = 3
# Measured with torch 2.13 on small models, where the profiler weighs most.
EVENT_NS: Final = 600
EVENT_WITH_SHAPES_NS: Final = 950
EVENT_BYTES: Final = 260
EVENT_WITH_SHAPES_BYTES: Final = 380
EVENT_MEMORY_BYTES: Final = 1600  # at its peak, while libkineto writes
STACKS_FACTOR: Final = 2.05
_ITERATION_GUESS_NS: Final = 2 * SECOND

DANGER: Final = (
    "torch's own profiler can kill the process: when a trace ends it frees what running operators still write to "
    "(SIGSEGV; docs/kindness.md counts how often)"
)
# Tried with torch 2.13: of 215 calls of a scripted module all operators are there, and no function or module.
TORCHSCRIPT: Final = (
    "TorchScript: functions and modules that the program may have scripted are missing, since libkineto on demand "
    "records only the operators within them; source sdk records both"
)
DECLARATION: Final = Declaration(
    name="kineto",
    rank=20,
    common=CommonAnswers(
        duration_ns=SERVED,
        iterations=SERVED,
        start_at_ns=BY_PROCESS,
        begin_step=NUMBERS_NO_STEPS,
        at_least_ns=Unserved("Kineto ends with the iteration that was asked for"),
        stacks=SERVED,
        c_calls=BY_PROCESS,
        max_overhead=cannot_guard("kineto"),
    ),
    torch=TorchAnswers(
        torch=BY_PROCESS,
        shapes=SERVED,
        memory=Unserved("kineto records no memory events on demand; attach the SDK for them"),
        modules=BY_PROCESS,
        flops=SERVED,
        gpu_fallback=Unserved("kineto takes no CUDA events on demand; --source sdk does, in an attached process"),
    ),
    sampling=SamplingAnswers(
        sample_hz=Unserved("kineto records every operator and does not sample"),
        native=Unserved("kineto records Python stacks only; --source pyspy --native samples native ones"),
    ),
    server=without_server("kineto"),
    traits=Traits(samples_beside=False),
    can_stop=False,
    danger=DANGER,
)


def window_ns(options: Options) -> int:
    """The window asked for; in iteration mode the longest that is waited for."""
    if options.iterations and not options.duration_ns:
        guess = max(60 * SECOND, options.iterations * _ITERATION_GUESS_NS)
        return min(guess, limits.CAPTURE_WINDOW_MAX_NS)
    return options.duration_ns or FALLBACK_DURATION_MS * 1_000_000


def attempt_ns(options: Options, period_ns: int) -> int:
    """The least time that one more window needs: its poll, lead, window and some writing."""
    return 2 * period_ns + LEAD_NS + window_ns(options) + 10 * SECOND


def ahead_ns(options: Options, now: float) -> int:
    """How far off the common start is, 0 without one; `now` is Unix seconds."""
    if options.start_at_ns is None or options.iterations:
        return 0
    return max(0, options.start_at_ns - int(now * SECOND))


def deadline_ns(options: Options, period_ns: int, now: float) -> int:
    """The longest a recording that begins `now` may take, missed windows included."""
    writing = 2 * window_ns(options) + WRITING_BASE_NS
    until_silent = max(SILENT_NS, 3 * period_ns)
    return ahead_ns(options, now) + until_silent + ATTEMPTS_MAX * attempt_ns(options, period_ns) + writing


def unserved(options: Options) -> dict[str, str]:
    """Options that kineto serves together with others only, by name, with the reason."""
    missing = {}
    if not options.stacks:
        missing["modules"] = "kineto records modules only together with stacks; add --stacks"
        missing["c_calls"] = "kineto records C calls together with stacks; add --stacks"
    if options.iterations:
        missing["start_at_ns"] = "kineto begins to count iterations as soon as it has been asked"
    if options.torch != "profiler":
        missing["torch"] = "kineto is torch's own profiler; source sdk has the observer, in attached processes"
    return missing


def notes(options: Options) -> list[str]:
    """What is in a trace in another way than a request suggests, or not at all, whatever it asks."""
    if not options.flops:
        return [TORCHSCRIPT]
    return [TORCHSCRIPT, "flops: kineto records none on demand; shapes are recorded instead, to compute FLOPS from"]


def risks(options: Options) -> list[str]:
    """The risks for the job; said before anything is touched."""
    said = [
        DANGER,
        "torch 2.13 dies with SIGSEGV if its interpreter exits while a trace runs or is written",
        "the window cannot be cut short once the process has accepted it",
    ]
    if options.iterations:
        said.append(
            "iterations are counted by optimizer steps: before the first step, or without an optimizer, "
            f"kineto records {window_ms(options)} ms instead"
        )
    if options.stacks:
        said.append("stacks: small steps take about twice as long while the window is open")
    if window_ns(options) > 5 * SECOND:
        said.append("kineto may need more than twice the window to write its file")
    return said


def window_ms(options: Options) -> int:
    """The duration that libkineto is given, in iteration mode its fallback."""
    return -(-options.duration_ns // 1_000_000) or FALLBACK_DURATION_MS


@dataclass(frozen=True, slots=True)
class EarlierTrace:
    """The contents of an earlier trace of a process, per ns of its window."""

    events: float
    stacks: bool  # with Python functions: about twice as many events


def expected_events(options: Options, rate: EarlierTrace | None) -> int | None:
    """Events of a window; None without an earlier trace, and for iterations, whose length is not known."""
    if rate is None or options.iterations:
        return None
    more = STACKS_FACTOR ** (options.stacks - rate.stacks)
    return round(rate.events * more * window_ns(options))


def cost(options: Options, events: int, window: int | None) -> Cost:
    """The cost of this many events for the process: measured elsewhere, multiplied here."""
    each_ns = _event_ns(options)
    seconds = events * each_ns / SECOND
    share = f", {100 * seconds * SECOND / window:.1f} % of the window" if window else ""
    detail = f"about {events:,} events at {each_ns / 1000:.2g} us each, as measured on small models{share}"
    return Cost(how="estimated", seconds=seconds, detail=detail)


def _event_ns(options: Options) -> int:
    return EVENT_WITH_SHAPES_NS if options.shapes else EVENT_NS


def plan(process: Process, options: Options, period_ns: int | None, rate: EarlierTrace | None, now: float) -> Plan:
    """Answer `Source.plan`. `now` is Unix seconds; `rate` comes from an earlier trace of the process."""
    period = period_ns or DEFAULT_PERIOD_NS
    refusal = _ending(process, options, period, now)
    said = tuple(risks(options))
    missing = unserved(options)
    deadline = deadline_ns(options, period, now)
    latency = max(period + (0 if options.iterations else LEAD_NS), ahead_ns(options, now))
    if refusal:
        return Plan(False, refusal, Reason.TARGET_ENDING, unserved=missing, risks=said, deadline_ns=deadline)
    events = expected_events(options, rate)
    return Plan(
        serves=True,
        unserved=missing,
        latency_ns=latency,
        events=events,
        memory_bytes=None if events is None else events * EVENT_MEMORY_BYTES,
        trace_bytes=None if events is None else events * (EVENT_WITH_SHAPES_BYTES if options.shapes else EVENT_BYTES),
        cost_ns=None if events is None else events * _event_ns(options),
        risks=said,
        deadline_ns=deadline,
    )


def _ending(process: Process, options: Options, period_ns: int, now: float) -> str:
    """A sentence if the scheduler ends the job before a trace could be whole."""
    raw = process.environ.get("SLURM_JOB_END_TIME", "")
    if not (raw.isascii() and raw.isdigit() and len(raw) <= 12):
        return ""
    left = int(raw) - now
    window = window_ns(options)
    lead = max(period_ns + LEAD_NS, ahead_ns(options, now))
    need = (lead + window + max(window, 10 * SECOND)) / SECOND
    if left >= need:
        return ""
    return (
        f"Slurm ends the job of pid {process.id.pid} in {max(0, int(left))} s and a trace needs up to "
        f"{need:.0f} s; torch crashes if it exits during a trace: ask for less"
    )
