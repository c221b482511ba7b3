"""`profctl memory`: Print what was allocated, freed, and is still there, by stack."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option, window_options, window_query
from profclient.cli.output import counted, emit_json, say, stack_text, table
from profclient.cli.units import signed_size, size

STACKS = 20
STACK_CHARS = 40  # a call and the end of the one around it


@click.command()
@click.argument("trace", default="")
@click.option("--limit", type=click.IntRange(0), default=None, help="Number of stacks; 0 = all. [20; all with --json]")
@window_options
@json_option
def memory(trace: str, limit: int | None, as_json: bool, **within: Any) -> None:
    """Print what was allocated, freed, and is still there, by stack. Needs a capture with --memory.

    STILL ALIVE is memory that was allocated in the window and not freed in it: leaks, and memory that the program goes
    on to use. GROWS tells the two apart, and comes first: such blocks were allocated in more than half of the training
    steps (without steps: of ten equal parts of the window). STEPS is the number of steps with such a block. STACK ends
    with the innermost call; a capture with --stacks has Python's, --json has whole paths.
    """
    stacks_wanted = limit if limit is not None else (0 if as_json else STACKS)
    with traces() as source:
        answer = source.ask("memory", trace, limit=stacks_wanted, **window_query(within)).value()
    if as_json:
        emit_json(answer)
        return
    if answer["devices"]:
        _print_devices(answer["devices"])
    if answer["alive"]:
        _print_alive(answer["alive"])
    if answer["message"]:
        say(str(answer["message"]))


def _print_devices(devices: list[dict[str, Any]]) -> None:
    numbers = ["ALLOCATED", "TIMES", "FREED", "FREES", "NET", "PEAK", "RESERVED", "OOM"]
    cells = (
        [
            _where(use),
            size(use["allocated_bytes"]),
            f"{use['allocations']:,}",
            size(use["freed_bytes"]),
            f"{use['frees']:,}",
            signed_size(use["net_bytes"]),
            size(use["peak_bytes"]),
            size(use["peak_reserved_bytes"]),
            f"{use['out_of_memory']:,}" if use["out_of_memory"] else "-",
        ]
        for use in devices
    )
    table(["WHERE", *numbers], cells, right=numbers, nothing=("-",))


def _print_alive(alive: dict[str, Any]) -> None:
    if not alive["blocks"]:
        click.echo("\nNothing that was allocated in the window is still alive.")
        return
    held = counted(alive["blocks"], "block")
    click.echo(f"\nStill alive: {size(alive['bytes'])} in {held} of {counted(alive['stacks'], 'stack')}")
    numbers = ["BYTES", "BLOCKS", "STEPS"]
    cells = (
        [
            size(row["bytes"]),
            f"{row['blocks']:,}",
            "-" if row["steps"] is None else f"{row['steps']:,}",
            "grows" if row["grows"] else "",
            _where(row),
            stack_text(row["stack"]) or "(no call around it)",
        ]
        for row in alive["rows"]
    )
    columns = [*numbers, "", "WHERE", "STACK"]
    table(columns, cells, right=numbers, wide=["STACK"], ends=["STACK"], least=STACK_CHARS, nothing=("-", ""))
    if alive["left_out"]:
        say(f"… {counted(alive['left_out'], 'stack')} with fewer bytes left out; --limit shows more, 0 all.")


def _where(row: dict[str, Any]) -> str:
    return str(row["device_type"]) + ("" if row["device"] is None else f" {row['device']}")
