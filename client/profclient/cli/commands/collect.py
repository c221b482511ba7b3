"""`profctl collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from profclient.cli.fleet_options import of_fleet, taken_up
from profclient.cli.options import json_option
from profclient.cli.output import emit_json
from profclient.cli.units import parse_size
from profclient.errors import UsageError


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
    from profclient.cli import gathering

    written = gathering.gather(record, folder, bytes_per_second, most)
    if as_json:
        emit_json(written)
    else:
        gathering.print_gathered(written, folder)
    ctx.exit(gathering.code(written))
