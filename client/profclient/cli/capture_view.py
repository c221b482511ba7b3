"""A capture as JSON (a contract), as lines on screen, and as an exit code."""

from __future__ import annotations

from typing import Any

from profproto.v1 import capture_pb2

from profclient.cli.units import duration

State = capture_pb2.State
_WHEN = ("before", "during", "after")
STORED, PARTIAL, BUSY = State.STATE_STORED, State.STATE_PARTIAL, State.STATE_BUSY


def state_name(state: int) -> str:
    """`STATE_STORED` → `stored`."""
    return _name(State, state).removeprefix("STATE_").lower()


def reason_name(reason: int) -> str | None:
    """`REASON_NO_FILE` → `no_file`; None for no reason."""
    name = _name(capture_pb2.Reason, reason).removeprefix("REASON_").lower()
    return None if name == "unspecified" else name


def _name(kind: Any, number: int) -> str:
    """Of a number on the wire; of one that this profctl does not know the number itself."""
    return str(kind.Name(number)) if number in kind.values() else f"unknown_{number}"


def live(capture: capture_pb2.Capture) -> bool:
    """Whether a state may still change."""
    return any(target.state < STORED for target in capture.targets)


def capture_json(capture: capture_pb2.Capture) -> dict[str, Any]:
    """The contract of `profctl start --json`. Absent is null."""
    return {
        "capture": capture.id,
        "state": state_name(capture.state),
        "owner": capture.owner,
        "created_ns": capture.created_ns,
        "finished_ns": optional(capture, "finished_ns"),
        "reason": capture.reason or None,
        "fleet": fleet_json(capture.fleet) if capture.HasField("fleet") else None,
        "targets": [target_json(target) for target in capture.targets],
    }


def fleet_json(fleet: capture_pb2.Fleet) -> dict[str, Any]:
    """The capture of many hosts that one belongs to."""
    return {"id": fleet.id, "host": fleet.host, "hosts": fleet.hosts, "found": fleet.found}


def target_json(target: capture_pb2.TargetStatus) -> dict[str, Any]:
    """One target of the contract."""
    return {
        "host": target.host,
        "pid": target.pid,
        "rank": optional(target, "rank"),
        "gpu": target.gpus[0] if target.gpus else None,
        "gpus": list(target.gpus),
        "user": target.user,
        "command": target.command,
        "job": target.job or None,
        "sources": list(target.sources),
        "state": state_name(target.state),
        "reason": reason_name(target.reason),
        "message": target.message or None,
        "trace": target.trace or None,
        "start_ns": optional(target, "start_ns"),
        "end_ns": optional(target, "end_ns"),
        "events": optional(target, "events"),
        "gpu_events": optional(target, "gpu_events"),
        "lost": [{"stage": loss.stage, "reason": loss.reason, "count": loss.count} for loss in target.lost],
        "not_honoured": list(target.not_honoured),
        "steps": steps_json(target.steps) if target.HasField("steps") else None,
        "cost": cost_json(target.cost) if target.HasField("cost") else None,
        "load": load_json(target.load),
        "warnings": list(target.warnings),
        "waterfall": [{"name": phase.name, "duration_ns": phase.duration_ns} for phase in target.waterfall],
    }


def steps_json(steps: capture_pb2.RecordedSteps) -> dict[str, Any]:
    """Whole steps that were recorded; `first` as the program numbers them."""
    return {"count": steps.count, "step_ns": steps.step_ns or None, "first": optional(steps, "first")}


def cost_json(cost: capture_pb2.Cost) -> dict[str, Any]:
    """The cost of the capture for its target."""
    return {
        "how": cost.how,
        "step_ratio": optional(cost, "step_ratio"),
        "seconds": optional(cost, "seconds"),
        "detail": cost.detail or None,
    }


def load_json(load: capture_pb2.Load) -> dict[str, Any]:
    """What the process took of the host before, during and after its window."""
    return {when: _stretch_json(getattr(load, when)) if load.HasField(when) else None for when in _WHEN}


def _stretch_json(stretch: capture_pb2.Stretch) -> dict[str, int]:
    return {field.name: getattr(stretch, field.name) for field in stretch.DESCRIPTOR.fields}


def load_line(load: capture_pb2.Load) -> str:
    """The same in a sentence; empty where nothing of the window is known."""
    if not load.HasField("during"):
        return ""
    return "; ".join(f"{when} {_stretch(getattr(load, when))}" for when in _WHEN if load.HasField(when))


def _stretch(stretch: capture_pb2.Stretch) -> str:
    def rate(count: float) -> str:
        return f"{count * 1e9 / stretch.lasted_ns:,.3g}"

    cores, queued = (f"{spent / stretch.lasted_ns:.2f}" for spent in (stretch.cpu_ns, stretch.run_queue_ns))
    often = f"{rate(stretch.waits)} waits and {rate(stretch.preemptions)} preemptions a second"
    return f"{cores} cores, {queued} threads waiting for one, {often}"


def optional(message: Any, field: str) -> Any:
    """The value of a field of a message; None where it is not there."""
    return getattr(message, field) if message.HasField(field) else None


def exit_code(capture: capture_pb2.Capture) -> int:
    """All stored 0; all busy 5; some stored or any partial 6; otherwise 1."""
    states = {target.state for target in capture.targets}
    if states == {STORED}:
        return 0
    if states == {BUSY}:
        return 5
    return 6 if states & {STORED, PARTIAL} else 1


def target_line(target: capture_pb2.TargetStatus) -> str:
    """One line: the process, its state, and its present work or the reason of its end."""
    text = f"pid {target.pid}"
    if target.HasField("rank"):
        text += f" (rank {target.rank})"
    sources = "+".join(target.sources)
    text += f"  {state_name(target.state)}" + (f" [{sources}]" if sources else "")
    more = target.doing if target.state < STORED else target.message
    return f"{text}  {more}" if more else text


def waterfall_line(target: capture_pb2.TargetStatus) -> str:
    """The capture's own phases and their durations."""
    return " · ".join(f"{phase.name} {duration(phase.duration_ns)}" for phase in target.waterfall)
