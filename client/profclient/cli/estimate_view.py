"""Plan and cost of a capture, before anything is touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from profproto.v1 import capture_pb2

from profclient.as_json import reason_name, state_name
from profclient.cli.output import printable, wrapped
from profclient.cli.units import duration, size


def estimates_json(estimates: Sequence[capture_pb2.TargetEstimate]) -> list[dict[str, Any]]:
    """The estimates for machines; null is "cannot be known beforehand"."""
    return [
        {
            "pid": estimate.target.pid,
            "state": state_name(estimate.target.state) if estimate.target.state else "ready",
            "reason": reason_name(estimate.target.reason),
            "message": estimate.target.message or None,
            "source": estimate.source or None,
            "choice": estimate.choice or None,
            "permission": estimate.permission or None,
            **{
                name: getattr(estimate, name) if estimate.HasField(name) else None
                for name in ("latency_ns", "events", "memory_bytes", "trace_bytes", "cost_ns")
            },
            "risks": list(estimate.risks),
            "not_honoured": list(estimate.not_honoured),
        }
        for estimate in estimates
    ]


def print_estimates(estimates: Sequence[capture_pb2.TargetEstimate]) -> None:
    """Print a block for each process, and that nothing has happened."""
    print_blocks(estimates)
    click.echo("\nNo process was touched. The same command without --dry-run records.")


def print_blocks(estimates: Sequence[capture_pb2.TargetEstimate]) -> None:
    """One block a process."""
    for number, estimate in enumerate(estimates):
        if number:
            click.echo()
        click.echo("\n".join(printable_lines(estimate)))


def printable_lines(estimate: capture_pb2.TargetEstimate) -> list[str]:
    """The block of one process."""
    target = estimate.target
    head = f"pid {target.pid}  {target.user}  {target.command[:80]}"
    if not estimate.source:
        return [
            printable(head),
            f"  would be {state_name(target.state)}: {printable(target.message)}",
        ]
    known = {
        "window opens": duration(estimate.latency_ns) if estimate.HasField("latency_ns") else "not known",
        "events": f"about {estimate.events:,}" if estimate.HasField("events") else "not known",
        "memory there": size(estimate.memory_bytes) if estimate.HasField("memory_bytes") else "not known",
        "raw data": size(estimate.trace_bytes) if estimate.HasField("trace_bytes") else "not known",
        "time of it": duration(estimate.cost_ns) if estimate.HasField("cost_ns") else "not known",
    }
    told = [("source", f"{estimate.source}: {estimate.choice}"), ("permission", estimate.permission), *known.items()]
    told += [("not honoured", text) for text in estimate.not_honoured]
    told += [("risk", text) for text in estimate.risks]
    return [printable(head), *(wrapped(printable(f"  {name:<13} {text}"), hang=16) for name, text in told)]
