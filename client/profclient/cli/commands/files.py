"""`profctl files`: List the Parquet files of a trace or a capture, for other engines."""

from __future__ import annotations

import click

from profclient.cli.options import json_option
from profclient.cli.output import emit_json, printable
from profclient.errors import UsageError


@click.command()
@click.argument("trace")
@click.option("--check", is_flag=True, help="Read the files of an exported capture and compare them with its sums.")
@json_option
def files(trace: str, check: bool, as_json: bool) -> None:
    """List the Parquet files with the events of a trace or a capture, one path a line. Needs --store DIR.

    DIR is a daemon's state directory, or where `profctl export CAPTURE -f parquet --to DIR` has written. Files that lie
    there and are not of the capture are not listed: a list is safer than a pattern.
    """
    store = click.get_current_context().find_root().obj
    if store is None:
        raise UsageError(
            "the files of a daemon are its own: `profctl export CAPTURE -f parquet --to DIR` writes them for you, then "
            "profctl --store DIR files CAPTURE lists them."
        )
    from profclient.offline import OfflineTraces

    found = OfflineTraces(store).files(trace, check)
    if as_json:
        emit_json(found)
        return
    for one in found:
        click.echo(printable(one["path"]))
