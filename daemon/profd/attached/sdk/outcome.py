"""The outcome of a recording, in a capture's words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from profd.attached.agents.protocol import Hello, Status
from profd.gpu.states import GpuReport, sentence
from profd.model.capture import Cost, Reason, RecordedSteps, Recording, State

# Fewer whole steps than this say nothing of how much slower they all were.
_STEPS_FOR_RATIO: Final = 3
_SLOWER_MIN: Final = 1.1  # a ratio below is within what steps differ by
_EXPLAINS_MIN: Final = 4  # events that take less than this part of what steps were longer by
_STOOD_MS: Final = 100  # that a user is told of


class Ending(Enum):
    """Why the window is over."""

    WINDOW = auto()  # its time has come
    ASKED = auto()  # the user, or the deadline
    ITSELF = auto()  # the agent says it has stopped
    GONE = auto()  # the process is gone, or another program by now, or its agent was cut off
    BROKEN = auto()  # nothing of what it records arrives any more
    COSTLY = auto()  # it costs more than allowed, whatever is left out


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts when everything has arrived, or has not."""

    ending: Ending
    gone: bool  # the process, or the program that was recorded
    cut_off: str  # why we closed the agent's connection; empty: we have not
    stopped: str | None  # the agent's reason; None: it has not answered
    events: int  # that arrived; a file of torch's own profiler counts as one
    whole: bool  # everything that was left in the arena has arrived
    intake_failure: str
    drain_problem: str
    streamer_restarts: int
    max_overhead: float | None
    stacks: bool  # calls were asked for


def explain(recording: Recording, facts: Facts) -> None:
    """Put into the recording what is missing, and why: the gravest as its reason, the rest as warnings."""
    if facts.gone:
        recording.reason = Reason.TARGET_ENDED
        recording.message = "the process ended during the capture; what it had recorded is kept"
    elif facts.cut_off:
        recording.reason = Reason.SOURCE_FAILED
        recording.message = f"its agent was cut off during the capture: {facts.cut_off}; what it had recorded is kept"
    elif facts.stopped is None:
        recording.warnings.append(
            "the process did not answer when its window was over (is it stopped?); what it had recorded was "
            "taken over, and it ends recording by itself when it runs again"
        )
    elif facts.ending is Ending.COSTLY or facts.stopped == "overhead":
        recording.reason = Reason.OVER_LIMIT
        recording.message = (
            f"stopped early: recording cost more than the {(facts.max_overhead or 0) * 100:g} % of --max-overhead, "
            "whatever was left out; what was recorded is kept"
        )
    elif facts.ending is Ending.ITSELF:
        _explain_itself(recording, facts.stopped)
    if facts.intake_failure:
        recording.reason, recording.message = Reason.DISK_FULL, facts.intake_failure
    elif not facts.whole:
        recording.reason = Reason.SOURCE_FAILED if facts.drain_problem else Reason.TIMEOUT
        why = facts.drain_problem or "what was left in the process's memory did not arrive in time"
        recording.message = f"{why}; what had arrived is kept, how much is missing is not known"
    if facts.streamer_restarts:
        times = "once" if facts.streamer_restarts == 1 else f"{facts.streamer_restarts} times"
        recording.warnings.append(f"the streamer was started again {times}; what it had not sent was sent again")
    if not facts.events:
        _explain_nothing(recording, facts.stacks)


def _explain_nothing(recording: Recording, stacks: bool) -> None:
    """An empty trace answers no question; why it is empty may."""
    recording.state, recording.files = State.FAILED, []
    if recording.reason is Reason.NONE:
        why = "; ".join(recording.not_honoured) or _nothing_ran(stacks)
        recording.reason, recording.message = Reason.NO_FILE, f"nothing was recorded: {why}"


def _nothing_ran(stacks: bool) -> str:
    if stacks:
        return "no range, operator or call ran in the window (`profctl where` shows what it does)"
    return "no range or operator ran in the window; --samples 100hz samples Python stacks, --stacks records calls"


def explain_gpu(recording: Recording, report: GpuReport) -> None:
    """Why CUDA's work is not in it, unless something graver is known. Without anything else, that is its state."""
    if report.stood_ms >= _STOOD_MS:
        recording.warnings.append(
            f"CUPTI waited {report.stood_ms} ms for the work that was queued on the GPU before it began, and the "
            "program's CUDA calls with it; that is once in a process, and never where `profctl run --cuda` starts it"
        )
    nothing = recording.state is State.FAILED and recording.reason in (Reason.NONE, Reason.NO_FILE)
    if report.reason is Reason.NONE or not (nothing or recording.reason is Reason.NONE):
        return
    recording.reason = report.reason
    recording.message = sentence(recording.not_honoured) or f"CUDA was not recorded ({report.state})"
    if nothing and report.reason is Reason.OTHER_PROFILER:
        recording.state = State.BUSY
    elif nothing and report.reason is Reason.NOT_PERMITTED:
        recording.state = State.REFUSED


def _explain_itself(recording: Recording, reason: str) -> None:
    if reason in ("exit", "fork"):
        recording.reason = Reason.TARGET_ENDED
        recording.message = "the program ended during the capture; what it recorded is kept"
    elif reason not in ("window", "iterations"):
        recording.warnings.append("the program ended the recording itself")


def cost(status: Status, window_ns: int, *, answered: bool) -> Cost:
    """The cost of recording: steps are measured; the seconds are events times the highest measured cost of one.

    Steps are compared with those right before the recording, else with those after it: nobody counts the steps of an
    optimizer before. No ratio of fewer than 3 whole steps, or without others. Not `answered`: the process had no last
    word, and `status` may be a second old.
    """
    if not (answered or status.events):
        return Cost(detail="the process ended before it reported what recording took")
    ratio = None
    others_ns = status.step_ns_before or status.step_ns_after
    if status.steps >= _STEPS_FOR_RATIO and status.step_ns and others_ns:
        ratio = status.step_ns / others_ns
    share = f"{100 * status.seconds * 1e9 / window_ns:.1f} % of the window" if window_ns > 0 else ""
    events = "1 event" if status.events == 1 else f"{status.events:,} events, each"
    later = "" if answered else "the time after its last report is not counted"
    counted = f"{events} counted at its highest measured cost"
    parts = (_steps(status), share, _sources(status), counted, _unexplained(status, ratio, window_ns), later)
    detail = "; ".join(part for part in parts if part)
    return Cost("estimated" if ratio is None else "measured", ratio, status.seconds, detail)


def _unexplained(status: Status, ratio: float | None, window_ns: int) -> str:
    """A word where events explain little of a slower step. Python's own tracing (`stacks`) costs beside its events."""
    if ratio is None or ratio < _SLOWER_MIN or window_ns <= 0 or "stacks" in status.by_source:
        return ""
    longer = 1 - 1 / ratio  # of the window
    if status.seconds * 1e9 >= longer * window_ns / _EXPLAINS_MIN:
        return ""
    return f"these explain little of the {ratio:.2f}x: the host may have been busier in the window, or its steps others"


def _sources(status: Status) -> str:
    """The time of each source, the largest first; those whose time rounds to nothing are left out."""
    unit, scale = ("s", 1.0) if status.seconds >= 1 else ("ms", 1e3)
    spent = sorted(status.by_source.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {took} {unit}" for name, time in spent if (took := f"{time * scale:.2f}") != "0.00")


def _steps(status: Status) -> str:
    """How long a step took, where any were seen."""
    seen = (("before", status.step_ns_before), ("during", status.step_ns), ("after", status.step_ns_after))
    told = [f"{duration / 1e6:.2f} ms {when}" for when, duration in seen if duration]
    return f"a step took {', '.join(told)}" if told else ""


def steps(status: Status) -> RecordedSteps | None:
    """The whole steps that were recorded; None where there is no word of any, or the one to begin at did not come."""
    if status.awaits_step:
        return RecordedSteps(0)
    numbered = status.step_from is not None and status.step_to is not None
    count = (status.step_to or 0) - (status.step_from or 0) if numbered else status.steps
    if not (numbered or count):
        return None
    return RecordedSteps(max(0, count), status.step_ns or 0, status.step_from if numbered else None)


def how_timed(status: Status) -> tuple[str, ...]:
    """Where device times are not CUPTI's: what they are."""
    if status.device_times != "cuda_events":
        return ()
    return (
        "device times are those between two CUDA events around each operator, waits for the GPU included; "
        "no kernels are recorded (--gpu-fallback)",
    )


def versions(hello: Hello) -> dict[str, str]:
    """Of what was in the process."""
    name, _, version = hello.framework.partition(" ")
    found = {"profclient": hello.agent, "python": hello.python, name: version}
    return {key: value for key, value in found.items() if key and value}
