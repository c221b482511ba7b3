"""`profctl timeline`: Print steps, modules, name scopes and operators on devices."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator

import click

from profclient.cli.backend import traces
from profclient.cli.commands.export import copy
from profclient.cli.commands.tree import PERSON_LINES
from profclient.cli.options import json_option
from profclient.cli.output import printable, say
from profclient.cli.units import duration

LINES = ("steps", "modules", "xla-ops", "scopes", "ops", "launches", "graphs", "sources")


@click.command()
@click.argument("trace", default="")
@click.option("--line", "wanted", type=click.Choice(LINES), multiple=True, help="Only these lines. Repeatable.")
@click.option(
    "--rules",
    type=click.Choice(("current", "classic")),
    default="current",
    show_default=True,
    help="Derive the lines as XProf does now, or as TensorFlow did in 2021.",
)
@json_option
def timeline(trace: str, wanted: tuple[str, ...], rules: str, as_json: bool) -> None:
    """Print steps, modules, name scopes and operators on the devices of a trace.

    profctl derives these lines from what the kernels of a JAX or TensorFlow trace carry, and in PyTorch from the
    operators that launched them. docs/timeline.md has both rule sets.
    """
    with traces() as source:
        answer = source.ask("timeline", trace, lines=wanted, rules=rules)
        if as_json:
            copy(answer, sys.stdout.buffer)
        else:
            _print(answer.lines())


def _print(rows: Iterator[bytes]) -> None:
    events = [json.loads(row) for row in itertools.islice(rows, PERSON_LINES + 1)]
    first = min((event["start_ns"] for event in events), default=0)
    before = None
    for event in events[:PERSON_LINES]:
        line = (event["plane"], event["line"], event["origin"])
        if line != before:
            click.echo(f"{printable(line[0])}  {printable(line[1])}  [{line[2]}]")
            before = line
        at, took = event["start_ns"] - first, event["duration_ps"] / 1000
        step = f"  [{printable(event['step'])}]" if event["step"] and event["what"] != "steps" else ""
        click.echo(f"{duration(at):>12}  {duration(took):>10}  {printable(event['name'])}{step}")
    if len(events) > PERSON_LINES:
        say(f"… cut at {PERSON_LINES} events; --line narrows the list, --json prints all.")
    if not events:
        say(
            "The trace has no such lines. They need work on a device. JAX and TensorFlow kernels must name their "
            "module or operator (hlo_module, hlo_op, tf_op), and steps need StepTraceAnnotation around the launches. "
            "For the host see profctl steps and profctl top --group-by module."
        )
