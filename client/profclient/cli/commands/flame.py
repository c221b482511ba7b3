"""`profctl flame`: Draw the call tree of a trace as a flame graph."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.commands.export import into_file
from profclient.cli.flame import layout, svg, terminal
from profclient.cli.options import json_option, within_options, within_query, within_words
from profclient.cli.output import counted, emit_json, say
from profclient.cli.units import duration, size
from profclient.errors import UsageError

_PIPE_COLUMNS = 160  # where nobody looks
_MEANING = {
    layout.TIME: "A box is as wide as the time of its thread; threads stand side by side.",
    layout.DEVICE: "A box is as wide as the time on devices of what it launched.",
}


@click.command()
@click.argument("trace", default="")
@click.option(
    *("-o", "--output"),
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="SVG file to write, for a browser. Without it: the terminal.",
)
@click.option(
    "--by",
    type=click.Choice(layout.WEIGHTS),
    default=layout.TIME,
    show_default=True,
    help="What makes a box wide: time of threads, or of devices.",
)
@within_options
@json_option
def flame(trace: str, output: Path | None, by: str, as_json: bool, **within: Any) -> None:
    """Draw the call tree of a trace: each path once, below its caller, as wide as it took time.

    In the SVG file a click zooms, Escape shows the whole graph again, and / searches.
    The numbers are those of `profctl tree --merged`, which --json prints.
    """
    if output is not None and output.suffix != ".svg":
        raise UsageError(f"{output}: flame writes SVG; name the file with .svg at its end.")
    with traces() as source:
        found = source.get(trace)
        answer = source.ask("merged_tree", found["id"], limit=0, **within_query(within)).value()
    if as_json:
        emit_json(answer)
        return
    drawn = layout.boxes(answer["nodes"], by)
    if not drawn:
        raise UsageError(_nothing(by))
    title = f"trace {found['id']}{within_words(within)}: {duration(layout.whole(drawn))}"
    if output is None:
        click.echo(f"{title}. {_MEANING[by]}")
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_COLUMNS
        for line in terminal.lines(drawn, columns):
            click.echo(line)
        return
    written = into_file((piece.encode() for piece in svg.drawing(drawn, title, _MEANING[by])), output)
    say(f"{output}: {size(written)}; open it in a browser.")
    if narrow := svg.left_out(drawn) + answer["left_out"]:
        say(f"{counted(narrow, 'path')} of too little time to be seen left out; --step and --window look closer.")


def _nothing(by: str) -> str:
    if by == layout.DEVICE:
        return "there is no work of devices in this part of the trace; without --by device it is drawn by time."
    return "there is no call with a duration in this part of the trace."
