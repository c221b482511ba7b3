"""`profctl steps`."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, say, table
from profclient.cli.units import duration


@click.command()
@click.argument("trace", default="")
@json_option
def steps(trace: str, as_json: bool) -> None:
    """The training steps of a trace, one by one.

    BUSY and IDLE are of the devices. CALLS are those that start work on one, DELAY is the
    median time until what they launched began. HOST is the share of the step in operators and
    runtime calls, waiting ones included. In traces of JAX and TensorFlow TOP OP is the operator that
    took longest on the devices for the step.
    """
    with traces() as source:
        answer = source.steps(trace)
    if as_json:
        emit_json(answer)
    elif answer["steps"]:
        _print(answer["steps"])
    else:
        say(str(answer["message"]))


def _print(rows: list[dict[str, Any]]) -> None:
    numbers = ["AT", "DURATION", "BUSY", "IDLE", "CALLS", "DELAY", "HOST"]
    first = rows[0]["start_ns"]
    with_ops = any(row.get("ops") for row in rows)
    columns = ["STEP", *numbers, *(["TOP OP"] if with_ops else [])]
    cells = (_cells(row, first) + ([_top(row)] if with_ops else []) for row in rows)
    table(columns, cells, right=numbers, wide=["STEP", "TOP OP"])


def _top(row: dict[str, Any]) -> str:
    ops = row.get("ops")
    return f"{ops[0]['name']} ({duration(ops[0]['duration_ns'])})" if ops else "-"


def _cells(row: dict[str, Any], first_ns: int) -> list[str]:
    times = (row["start_ns"] - first_ns, row["duration_ns"], row["device_busy_ns"], row["device_idle_ns"])
    share = row["host_share"]
    return [
        row["name"],
        *(duration(ns) for ns in times),
        f"{row['launches']:,}",
        duration(row.get("launch_delay_p50_ns")),  # older daemons do not say
        "-" if share is None else f"{share:.0%}",
    ]
