"""`profctl flame`: Draw the call tree of a trace as a flame graph."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.commands.export import into_file
from profclient.cli.flame import layout, memory, svg, terminal
from profclient.cli.flame.differences import Differences
from profclient.cli.merged_view import say_of_profd
from profclient.cli.options import json_option, within_options, within_query, within_words
from profclient.cli.output import counted, emit_json, printable, said_columns, say, wrapped
from profclient.cli.units import duration, size
from profclient.errors import UsageError
from profclient.traces import is_capture

_MEMORY = "memory"
_PIPE_COLUMNS = 160  # where nobody looks
_MEANING = {
    layout.TIME: "A box is as wide as the time of its thread; threads stand side by side.",
    layout.DEVICE: "A box is as wide as the time on devices of what it launched.",
}


@click.command()
@click.argument("trace", default="")
@click.argument("other", default="", metavar="[B]")
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
    help="Width of a box: time of threads, or of devices.",
)
@click.option(
    "--of",
    type=click.Choice(("calls", "modules", "operators", "samples", _MEMORY)),
    default="calls",
    show_default=True,
    help="Calls to draw: all, or only modules, operators or samples. memory: allocations alive at the peak.",
)
@click.option("--device", default="", help="With --of memory: of this device, as CPU or 'CUDA 0'. [an accelerator]")
@within_options
@json_option
def flame(trace: str, other: str, output: Path | None, as_json: bool, **asked: Any) -> None:
    """Draw the call tree of a trace: each path once, below its caller, as wide as it took time.

    With a second trace (or two captures) the command draws one graph of both: boxes are as wide as in B, per step where
    both mark steps, red where B takes longer than the first and blue where it takes less. `profctl diff` says which
    changes are noise.

    --of memory draws the allocations that were alive at the moment when their sum was largest, by the stacks that made
    them, as wide as their bytes; it needs a capture with --memory, and knows of no allocation from before the window.

    In the SVG file a click zooms, Escape shows the whole graph again, and / searches.
    The numbers are those of `profctl tree --merged`, which --json prints.
    """
    by, of, device = (asked.pop(name) for name in ("by", "of", "device"))
    if output is not None and output.suffix != ".svg":
        raise UsageError(f"{output}: flame writes SVG; name the file with .svg at its end.")
    if other and of != "calls":
        raise UsageError("two traces are compared by all of their calls: leave out --of.")
    if device and of != _MEMORY:
        raise UsageError("--device chooses whose memory is drawn: add --of memory, or leave it out.")
    if other:
        _of_both(trace, other, output, by, as_json, asked)
    elif of == _MEMORY:
        if by == layout.DEVICE:
            raise UsageError("memory is drawn by bytes: leave out --by; --device 'CUDA 0' chooses whose memory.")
        _of_memory(trace, device, output, as_json, asked)
    else:
        _of_calls(trace, output, by, of, as_json, asked)


def _of_calls(trace: str, output: Path | None, by: str, of: str, as_json: bool, within: dict[str, Any]) -> None:
    with traces() as source:
        found = source.get(trace)
        answer = source.ask("merged_tree", found["id"], limit=0, of=of, **within_query(within)).value()
    if as_json:
        emit_json(answer)
        return
    drawn = layout.boxes(answer["nodes"], by)
    if not drawn:
        raise UsageError(_nothing(by, of))
    words = within_words(within) + (f" --of {of}" if of != "calls" else "")
    title = f"trace {found['id']}{words}: {duration(layout.whole(drawn))}"
    _draw(_Graph(drawn, title, _MEANING[by], answer["left_out"]), output)
    say_of_profd(answer)


def _of_memory(trace: str, device: str, output: Path | None, as_json: bool, within: dict[str, Any]) -> None:
    with traces() as source:
        found = source.get(trace)
        answer = source.ask("memory_peak", found["id"], limit=0, device=device, **within_query(within)).value()
    if as_json:
        emit_json(answer)
        return
    if answer["message"]:
        raise UsageError(printable(answer["message"]) + ".")
    drawn = memory.boxes(answer["nodes"])
    title = f"trace {found['id']}{within_words(within)}, memory at its peak: {memory.title(answer)}"
    _draw(_Graph(drawn, title, memory.meaning(answer), answer["left_out"], memory.LOOK), output)
    if len(answer["devices"]) > 1:
        others = (
            f"{one['name']} {size(one['peak_bytes'])}" for one in answer["devices"] if one["name"] != answer["name"]
        )
        say(f"The peaks of other devices: {', '.join(others)}; --device draws one.")


def _of_both(trace: str, other: str, output: Path | None, by: str, as_json: bool, within: dict[str, Any]) -> None:
    if any(value is not None for value in within.values()):
        raise UsageError("two traces are compared as a whole, step by step: leave out what narrows one.")
    if is_capture(trace) != is_capture(other):
        raise UsageError("a capture is compared with a capture, a trace with a trace; `profctl list` lists traces.")
    with traces() as source:
        answer = source.ask("merged_diff", trace, other=other, limit=0).value()
    if as_json:
        emit_json(answer)
        return
    differences = Differences(answer["nodes"], by, answer["per"])
    if not differences.boxes:
        raise UsageError(_nothing(by))
    per = "per step" if answer["per"] == "step" else "in all"
    title = f"{other}, compared with {trace}: {duration(layout.whole(differences.boxes))} {per}"
    meaning = f"{_MEANING[by]} Red: longer than in {trace}. Blue: shorter."
    if answer["message"]:
        say(printable(answer["message"]))
    look = svg.Appearance(differences.look, differences.words, differences.change)
    _draw(_Graph(differences.boxes, title, meaning, answer["left_out"], look, closer="."), output)


@dataclass(frozen=True, slots=True)
class _Graph:
    boxes: list[layout.Box]
    title: str
    meaning: str
    left_out: int  # paths that the answer has not
    look: svg.Appearance = svg.CALLS
    closer: str = "; --step and --window look closer."


def _draw(graph: _Graph, output: Path | None) -> None:
    if output is None:
        click.echo(wrapped(f"{graph.title}. {graph.meaning}", 0))
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else said_columns(_PIPE_COLUMNS)
        for line in terminal.lines(graph.boxes, columns, graph.look.told):
            click.echo(line)
        return
    pieces = svg.drawing(graph.boxes, graph.title, graph.meaning, graph.look)
    written = into_file((piece.encode() for piece in pieces), output)
    say(f"{output}: {size(written)}; open it in a browser.")
    if narrow := svg.left_out(graph.boxes) + graph.left_out:
        say(f"{counted(narrow, 'path')} of too little {graph.look.little} to be seen left out{graph.closer}")


def _nothing(by: str, of: str = "calls") -> str:
    if of != "calls":
        return f"there are no {of} with time in this part of the trace; without --of all calls are drawn."
    if by == layout.DEVICE:
        return "there is no work of devices in this part of the trace; without --by device it is drawn by time."
    return "there is no call with a duration in this part of the trace."
