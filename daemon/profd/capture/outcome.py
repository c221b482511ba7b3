"""The meaning of a stored trace for its target: whole, or partial and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from profd.capture.records import TargetRecord
from profd.model.capture import Loss, Phase, Reason, Recording, State
from profd.model.shortfall import missing_gpu_records


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """The store's word about a trace that it took."""

    trace: str  # id
    events: int
    gpu_events: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    lost: list[Loss] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    truncated: bool = False
    gpu_launches: int | None = None  # launches seen on the CPU side; None: not counted
    waterfall: list[Phase] = field(default_factory=list)


def verdict(recording: Recording, trace: StoredTrace, target: TargetRecord) -> tuple[State, Reason, str]:
    """State, reason and sentence of a target whose trace is stored; the first shortfall found names it.

    A whole one has the sentence that its source gave it: what the trace cannot have in it, and what would change that.
    """
    if recording.reason is not Reason.NONE:
        return State.PARTIAL, recording.reason, recording.message
    if trace.truncated:
        message = "the data ends early; what was readable is kept"
        return State.PARTIAL, Reason.TRUNCATED, message
    shortfall = gpu_shortfall(trace, target)
    if shortfall:
        return State.PARTIAL, Reason.NO_GPU_RECORDS, shortfall
    lost = sum(loss.count for loss in [*recording.lost, *trace.lost])
    if lost:
        where = ", ".join(sorted({f"{loss.stage}: {loss.reason}" for loss in [*recording.lost, *trace.lost]}))
        return State.PARTIAL, Reason.LOSSES, f"{lost} events are not in the trace ({where})"
    return State.STORED, Reason.NONE, recording.message


def gpu_shortfall(trace: StoredTrace, target: TargetRecord) -> str:
    """Why GPU rows are missing where they should be; empty if they are not, or none are due."""
    if not target.known_traits.device_rows or trace.gpu_events is None or trace.gpu_events > 0:
        return ""
    if trace.gpu_launches:
        return missing_gpu_records(trace.gpu_launches)
    if target.cuda:
        return (
            "the process has CUDA loaded and no kernel was recorded: it was idle in the window, "
            "or CUPTI is held by another profiler or missing in its environment"
        )
    return ""
