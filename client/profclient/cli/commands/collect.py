"""`profctl collect`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profclient.cli.fleet_options import of_fleet, taken_up
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, one_line, say
from profclient.cli.units import parse_size, size
from profclient.errors import UsageError
from profclient.layout import bytes_of

if TYPE_CHECKING:
    from profclient.fleet.records import Record


@click.command()
@click.argument("capture")
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write into."
)
@click.option("--rate", default="64MiB", show_default=True, help="Bytes per second, from all hosts together.")
@click.option("--host-bytes", default="64GiB", show_default=True, help="Bytes of one host; one with more is missing.")
@taken_up
@json_option
@click.pass_context
def collect(
    ctx: click.Context, /, capture: str, folder: Path, rate: str, host_bytes: str, as_json: bool, **values: Any
) -> None:
    """Bring the traces of a capture of many hosts into one folder, as Parquet.

    Any engine reads FOLDER/capture=ID/host=HOST/rank=RANK/trace=TRACE/. `profctl top ID`, `steps ID` and the others
    then answer about all hosts from it; on other machines with profctl --store FOLDER. _COMMIT.json in capture=ID lists
    the files, and what is missing.
    """
    bytes_per_second = parse_size(rate.removesuffix("/s"))
    if not bytes_per_second:
        raise UsageError(f"--rate {rate} would bring nothing.")
    most = parse_size(host_bytes)
    record = of_fleet(capture, values, part=False)
    if record is None:
        raise UsageError(
            f"{capture} is no capture of many hosts, whose ids begin with f. A capture of this host is written with: "
            "profctl export CAPTURE -f parquet --to DIR"
        )
    import asyncio

    from profclient.fleet.collect import collect as bring

    written = asyncio.run(bring(record.way, record.id, folder, record.left_out.items(), bytes_per_second, most))
    if written["traces"]:
        _remember(record, folder)
    if as_json:
        emit_json(written)
    else:
        count = counted(len(written["traces"]), "trace")
        say(f"{folder / ('capture=' + record.id)}: {count}, {size(bytes_of(written['traces']))}")
        for one in written["missing"]:
            rank = "" if one["rank"] is None else f" rank {one['rank']}"
            say(f"  missing  {one_line(one['host'] + rank + ': ' + one['why'])}")
        if written["traces"]:
            say(f"next: profctl top {record.id} --by rank; elsewhere profctl --store {shlex.quote(str(folder))} top …")
    ctx.exit(0 if not written["missing"] else 6 if written["traces"] else 1)


def _remember(record: Record, folder: Path) -> None:
    """The folder, for commands that name the capture alone."""
    from profclient.fleet import records

    try:
        records.write(replace(record, collected=str(folder.resolve())))
    except OSError as error:
        say(f"warning: {records.folder()} cannot be written ({error.strerror}): questions will need --store")
