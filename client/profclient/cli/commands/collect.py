"""`profctl collect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from profclient.cli.fleet_options import fleet_options, of_fleet, way
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, one_line, say
from profclient.cli.units import size
from profclient.errors import UsageError


@click.command()
@click.argument("capture")
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder to write into."
)
@fleet_options
@json_option
@click.pass_context
def collect(ctx: click.Context, /, capture: str, folder: Path, as_json: bool, **values: Any) -> None:
    """Bring the traces of a capture of many hosts into one folder, as Parquet.

    FOLDER/capture=ID/host=HOST/rank=RANK/trace=TRACE/events.parquet; _COMMIT.json in capture=ID comes last, and lists
    what is there and what is missing.
    """
    record = of_fleet(capture, way(values))
    if record is None:
        raise UsageError(
            f"{capture} is no capture of many hosts, whose ids begin with f. A trace of this host is written with: "
            "profctl export TRACE -f parquet -o FILE"
        )
    import asyncio

    from profclient.fleet.collect import collect as bring

    written = asyncio.run(bring(record.way, record.id, folder, record.left_out.items()))
    if as_json:
        emit_json(written)
    else:
        total = sum(trace["bytes"] for trace in written["traces"])
        say(f"{folder / ('capture=' + record.id)}: {len(written['traces']):,} traces, {size(total)}")
        for one in written["missing"]:
            rank = "" if one["rank"] is None else f" rank {one['rank']}"
            say(f"  missing  {one_line(one['host'] + rank + ': ' + one['why'])}")
    ctx.exit(0 if not written["missing"] else 6 if written["traces"] else 1)
