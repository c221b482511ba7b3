"""`profctl critical`: Say what the end of the steps waited for, and what would be gained without it."""

from __future__ import annotations

from typing import Any, Final

import click

from profclient.cli.backend import traces
from profclient.cli.imported import say_whose_rank
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, say, table
from profclient.cli.ranks_path_view import print_ranks_on_path
from profclient.cli.units import duration, share, shorter
from profclient.traces import is_capture

NAMES: Final = 10
_PARTS: Final = {
    "host_ns": "host",
    "device_ns": "devices",
    "launch_ns": "launches under way",
    "return_ns": "returns of waits",
    "gap_ns": "gaps between device work",
}


@click.command()
@click.argument("trace", default="")
@click.option("--limit", type=click.IntRange(0), default=NAMES, show_default=True, help="Number of names; 0 = all.")
@json_option
def critical(trace: str, limit: int, as_json: bool) -> None:
    """Say what set the pace of the training steps: the chain of host and device work that their end waited for.

    ON PATH is the time that a name had on this chain: what runs beside it costs nothing. WITHOUT IT is how much shorter
    the steps would have been if the name had taken no time. profctl replays the same launches, queues and waits for
    this, so that the chain that comes next counts, too. The first step, which warms up, is left out. docs/answers.md
    names the assumptions.

    TRACE may be a capture: the chain then leads over the ranks that the others waited for. WITHOUT IT is how much
    shorter the steps would have been if the rank had been like the others (docs/ranks.md).

    \b
      profctl critical                                 # the latest trace
      profctl critical c0123456789ab                   # all ranks of a capture
      profctl critical 06v1 --limit 0 --json           # every name on the path
    """
    with traces() as source:
        answer = source.ask("critical", trace, limit=limit).value()
        say_whose_rank(source, "critical", trace)
    if as_json:
        emit_json(answer)
    elif answer["path"] is None:
        say(str(answer["message"]))
    elif is_capture(trace):
        print_ranks_on_path(answer)
    else:
        _print(answer)


def _print(answer: dict[str, Any]) -> None:
    whole, steps = answer["path"]["duration_ns"], answer["steps"]
    numbers = f"step {steps['first']}" if steps["n"] == 1 else f"steps {steps['first']}..{steps['last']}"
    click.echo(f"What the end of {numbers} waited for ({duration(whole)}):")
    parts = [(answer["path"][key], words) for key, words in _PARTS.items()]
    click.echo("  " + ", ".join(f"{words} {share(ns, whole)}" for ns, words in parts if ns) + "\n")
    cells = (
        [
            share(row["path_ns"], whole),
            duration(row["path_ns"]),
            "-" if row["calls"] is None else f"{row['calls']:,}",
            "-" if row["without_ns"] is None else shorter(whole - row["without_ns"], whole),
            row["where"],
            row["name"],
        ]
        for row in answer["rows"]
    )
    right = ["ON PATH", "TIME", "CALLS", "WITHOUT IT"]
    table([*right, "WHERE", "NAME"], cells, right=right, wide=["NAME"], nothing=("-",))
    if answer["left_out"]:
        say(f"… {counted(answer['left_out'], 'name')} with less left out; --limit shows more, 0 all.")
    if answer["without_waits_ns"] is not None:
        gained = share(whole - answer["without_waits_ns"], whole)
        say(f"Had the program never waited for a device, the steps had been {gained} shorter.")
