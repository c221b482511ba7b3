"""`profctl steps`: List the training steps of a trace."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, say, table
from profclient.cli.units import duration

NAME_CHARS = 20  # of a step's name and its top operator: less does not tell them apart


@click.command()
@click.argument("trace", default="")
@json_option
def steps(trace: str, as_json: bool) -> None:
    """List the training steps of a trace.

    STEP is the number that `profctl export --step` takes. BUSY and IDLE are times of the devices.
    CALLS counts the calls that start work on a device; DELAY is the median time until that work
    began. HOST is the share of the step in operators and runtime calls, waiting included. TOP OP, in
    traces of JAX and TensorFlow, is the operator that took longest on the devices.
    """
    with traces() as source:
        answer = source.ask("steps", trace).value()
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
    columns = ["STEP", "NAME", *numbers, *(["TOP OP"] if with_ops else [])]
    alike = len({row["name"].removesuffix(f"#{row.get('number')}") for row in rows}) == 1
    cells = (_cells(row, first) + ([_top(row)] if with_ops else []) for row in rows)
    spare = ["NAME"] if alike else []  # the number says as much
    table(columns, cells, right=["STEP", *numbers], wide=["NAME", "TOP OP"], spare=spare, least=NAME_CHARS)


def _top(row: dict[str, Any]) -> str:
    ops = row.get("ops")
    return f"{ops[0]['name']} ({duration(ops[0]['duration_ns'])})" if ops else "-"


def _cells(row: dict[str, Any], first_ns: int) -> list[str]:
    times = (row["start_ns"] - first_ns, row["duration_ns"], row["device_busy_ns"], row["device_idle_ns"])
    share = row["host_share"]
    return [
        str(row.get("number", "-")),  # older daemons do not say
        row["name"],
        *(duration(ns) for ns in times),
        f"{row['launches']:,}",
        duration(row.get("launch_delay_p50_ns")),
        "-" if share is None else f"{share:.0%}",
    ]
