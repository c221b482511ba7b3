"""`profctl export`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from profclient.cli.backend import traces
from profclient.cli.output import say
from profclient.cli.units import parse_duration_ns, parse_window_ns, size
from profclient.errors import UsageError

OPENS_WITH = {
    "chrome": "open it at https://ui.perfetto.dev or chrome://tracing",
    "folded": "flamegraph.pl FILE > flame.svg draws it",
    "speedscope": "open it at https://www.speedscope.app",
    "xspace": "xprof --logdir DIR, where FILE is DIR/plugins/profile/NAME/HOST.xplane.pb",
}


@click.command()
@click.argument("trace", default="")
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(tuple(OPENS_WITH)),
    default="chrome",
    help="For which tool.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None, help="File; - or nothing: stdout.")
@click.option("--window", help="Only this part: 1s..1.5s from the first event.")
@click.option("--min-duration", help="Only events at least this long: 10us.")
def export(trace: str, format_: str, output: Path | None, window: str | None, min_duration: str | None) -> None:
    """Write a trace for another tool. A name that ends in .gz is compressed."""
    from_ns, to_ns = parse_window_ns(window) if window else (None, None)
    to_file = output is not None and str(output) != "-"
    if not to_file and sys.stdout.isatty():
        raise UsageError("that would fill your terminal; name a file with -o FILE.")
    with traces() as source:
        pieces = source.export(
            trace,
            format=format_,
            from_ns=from_ns,
            to_ns=to_ns,
            min_duration_ns=parse_duration_ns(min_duration) if min_duration else 0,
            gzip=to_file and str(output).endswith(".gz"),
        )
        if not to_file or output is None:
            _copy(pieces, sys.stdout.buffer)
            return
        written = _into_file(pieces, output)
    say(f"{output}: {size(written)}; {OPENS_WITH[format_]}")


def _into_file(pieces: Iterator[bytes], output: Path) -> int:
    """Whole or not at all: a half-written trace would look like a broken one."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            written = _copy(pieces, file)
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return written


def _copy(pieces: Iterator[bytes], out: BinaryIO) -> int:
    written = 0
    for piece in pieces:
        out.write(piece)
        written += len(piece)
    out.flush()
    return written
