"""Processes and captures as JSON, which is a contract (docs/json.md): of commands, and of the daemon's live answers."""

from __future__ import annotations

from typing import Any

from profproto.v1 import capture_pb2

State = capture_pb2.State
WHEN = ("before", "during", "after")


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
    return {when: _stretch_json(getattr(load, when)) if load.HasField(when) else None for when in WHEN}


def _stretch_json(stretch: capture_pb2.Stretch) -> dict[str, int]:
    return {field.name: getattr(stretch, field.name) for field in stretch.DESCRIPTOR.fields}


def process_json(target: capture_pb2.Target) -> dict[str, Any]:
    """One process of the contract. Absent is null."""
    return {
        "pid": target.pid,
        "user": target.user,
        "command": target.command,
        "job": target.job or None,
        "rank": target.rank if target.HasField("rank") else None,
        "gpus": list(target.gpus),
        "framework": target.framework or None,
        "sources": list(target.sources),
        "state": target.state,
        "reason": target.reason or None,
        "fix": target.fix or None,
        "attached": target.attached,
    }


def optional(message: Any, field: str) -> Any:
    """The value of a field of a message; None where it is not there."""
    return getattr(message, field) if message.HasField(field) else None
