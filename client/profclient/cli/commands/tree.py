"""`profctl tree`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option
from profclient.cli.output import printable, say
from profclient.cli.units import duration

PERSON_LINES = 2000  # nobody reads more; --json has all


@click.command()
@click.argument("trace", default="")
@click.option("--depth", type=click.IntRange(0), default=0, help="Only so many levels; 0 = all.")
@click.option("--row", type=click.IntRange(0), default=None, help="Only the subtree of this row.")
@json_option
def tree(trace: str, depth: int, row: int | None, as_json: bool) -> None:
    """The call tree of a trace, in start order."""
    with traces() as source:
        pieces = source.tree(trace, max_depth=depth, from_row=row)
        if as_json:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            _print(lines(pieces))


def lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream of pieces."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _print(rows: Iterator[bytes]) -> None:
    for number, line in enumerate(rows):
        if number == PERSON_LINES:
            say(f"… cut at {PERSON_LINES} lines; --depth or --row narrows it, --json prints all.")
            return
        event = json.loads(line)
        took = None if event["end_ns"] is None else event["end_ns"] - event["start_ns"]
        name = printable(event["name"])
        click.echo(f"{event['row']:>8}  {duration(took):>10}  {'  ' * event['depth']}{name}  [{event['kind']}]")
