"""`profctl top`."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, say, table
from profclient.cli.units import duration

SORT_KEYS = (
    "self_cpu_time_total",
    "cpu_time_total",
    "self_device_time_total",
    "device_time_total",
    "count",
    "name",
)


@click.command()
@click.argument("trace", default="")
@click.option("--limit", type=click.IntRange(0), default=None, help="So many rows; 0 = all. [20; all with --json]")
@click.option("--sort-by", type=click.Choice(SORT_KEYS), default=SORT_KEYS[0], show_default=True, help="Order.")
@click.option("--group-by-input-shape", is_flag=True, help="A row for each combination of input shapes.")
@click.option("--group-by-stack-n", type=click.IntRange(0), default=0, help="A row for each n innermost frames.")
@click.option("--raw", is_flag=True, help="Every event as it was recorded, instead of torch.profiler's view.")
@json_option
def top(
    trace: str,
    limit: int | None,
    sort_by: str,
    group_by_input_shape: bool,
    group_by_stack_n: int,
    raw: bool,
    as_json: bool,
) -> None:
    """Where the time went, by name: torch.profiler's key averages."""
    rows_wanted = limit if limit is not None else (0 if as_json else 20)
    with traces() as source:
        rows = source.top(
            trace,
            limit=rows_wanted,
            sort_by=sort_by,
            group_by_input_shape=group_by_input_shape,
            group_by_stack_n=group_by_stack_n,
            raw=raw,
        )
    if as_json:
        emit_json(rows)
    elif rows:
        print_rows(rows)
    else:
        say("The trace has no event with a duration.")


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A table; device columns only where something ran on a device."""
    device = any(row["device_time_total_ns"] for row in rows)
    shapes = any(row.get("input_shapes") for row in rows)
    columns = ["SELF CPU", "CPU TOTAL", "CPU AVG"]
    columns += ["SELF DEVICE", "DEVICE TOTAL"] if device else []
    columns += ["CALLS"]
    last = ["NAME"] + (["SHAPES"] if shapes else [])
    table(columns + last, (_cells(row, device, shapes) for row in rows), right=columns, wide=last)


def _cells(row: dict[str, Any], device: bool, shapes: bool) -> list[str]:
    total, count = row["cpu_time_total_ns"], row["count"]
    cells = [duration(row["self_cpu_time_total_ns"]), duration(total), duration(total / max(count, 1))]
    if device:
        cells += [duration(row["self_device_time_total_ns"]), duration(row["device_time_total_ns"])]
    cells += [f"{count:,}", row["name"]]
    return [*cells, str(row.get("input_shapes") or "")] if shapes else cells
