"""`profctl import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from profclient.cli.backend import following, traces
from profclient.cli.imported import imported
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, say
from profclient.traces import readable


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--dialect",
    type=click.Choice(["torch-legacy"]),
    help="Read Chrome begin and end events by the rules of torch's profiler before Kineto: doubled wrappers become one "
    "event, an event that ends on another thread is asynchronous, and memory counts for every open event.",
)
@click.option("--together", is_flag=True, help="The files are of all ranks of one job: make one capture of them.")
@json_option
def import_files(files: tuple[Path, ...], dialect: str | None, together: bool, as_json: bool) -> None:
    """Store trace files of other tools. profctl tells their format by their content.

    Formats: Kineto and Chrome JSON (plain or .gz), SQLite databases of nvprof, XSpaces of XLA (*.xplane.pb), bundles.
    An import keeps every event unless a --dialect leaves events out.

    --json prints {"trace", "events", "lost"} for one file, and a list of these for several; with --together each has a
    "capture".
    """
    for path in files:
        readable(path)
    results: list[dict[str, Any]] = []
    with traces() as source:
        for trace in imported(source, files, dialect or "", together=together, quiet=as_json):
            results.append({"trace": trace["id"], "events": trace["events"], "lost": trace["lost"]})
            if together:
                results[-1]["capture"] = trace["capture"]
            if not as_json:
                _say(results[-1], "" if together else f"next: {following('profctl top ' + trace['id'])}")
    if as_json:
        emit_json(results[0] if len(results) == 1 else results)
    elif together:
        say(f"next: {following('profctl ranks ' + results[0]['capture'])}")


def _say(result: dict[str, Any], following: str) -> None:
    lost = "".join(f", {loss['count']:,} lost ({loss['reason']})" for loss in result["lost"])
    click.echo(f"{result['trace']}  {counted(result['events'], 'event')}{lost}")
    if following:
        say(following)
