"""Traces of a capture of many hosts in a folder of the user's: brought, told, remembered."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from profclient.cli.output import counted, one_line, say
from profclient.cli.units import size
from profclient.fleet import records
from profclient.fleet.collect import HOST_BYTES_MAX, collect
from profclient.fleet.pace import BYTES_PER_SECOND
from profclient.fleet.records import Record
from profclient.layout import CaptureFolder, bytes_of

PARTIAL = 6
MISSING_SHOWN = 100  # processes and hosts: one host may name thousands, with a sentence about each


def check(folder: Path, fleet_id: str) -> None:
    """Raises UsageError where the capture cannot be written there: nobody wants to hear that after the recording."""
    with CaptureFolder(folder, fleet_id):
        pass


def gather(
    record: Record, folder: Path, bytes_per_second: int = BYTES_PER_SECOND, host_bytes: int = HOST_BYTES_MAX
) -> dict[str, Any]:
    """Bring the traces of all hosts into the folder: what the commit says, or would if there were a trace."""
    left_out = record.left_out.items()
    written = asyncio.run(collect(record.way, record.id, folder, left_out, bytes_per_second, host_bytes))
    if written["traces"]:
        _remember(record, folder)
    return written


def print_gathered(written: dict[str, Any], folder: Path) -> None:
    """Print what came, what is missing, and what answers about it."""
    count = counted(len(written["traces"]), "trace")
    say(f"{folder / ('capture=' + written['capture'])}: {count}, {size(bytes_of(written['traces']))}")
    missing = written["missing"]
    for one in missing[:MISSING_SHOWN]:
        rank = "" if one["rank"] is None else f" rank {one['rank']}"
        say(f"  missing  {one_line(one['host'] + rank + ': ' + one['why'])}")
    if len(missing) > MISSING_SHOWN:
        say(f"  missing  … and {len(missing) - MISSING_SHOWN:,} more; --json has all")
    if written["traces"]:
        elsewhere = f"profctl --store {shlex.quote(str(folder))} top …"
        say(f"next: profctl top {written['capture']} --by rank; elsewhere {elsewhere}")


def code(written: dict[str, Any]) -> int:
    """The exit code: all came, some, or nothing."""
    return 0 if not written["missing"] else PARTIAL if written["traces"] else 1


def _remember(record: Record, folder: Path) -> None:
    """The folder, for commands that name the capture alone."""
    try:
        records.write(replace(record, collected=str(folder.resolve())))
    except OSError as error:
        say(f"warning: {records.folder()} cannot be written ({error.strerror}): questions will need --store")
