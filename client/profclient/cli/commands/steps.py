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
    runtime calls, waiting ones included.
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
    table(["STEP", *numbers], (_cells(row, first) for row in rows), right=numbers, wide=["STEP"])


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
