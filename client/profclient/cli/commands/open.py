"""`profctl open`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Final

import click

from profclient.cli import browser
from profclient.cli.backend import traces
from profclient.cli.commands.export import copy
from profclient.cli.options import part_options, part_query, warn_if_beyond
from profclient.cli.output import say
from profclient.cli.units import size
from profclient.errors import UsageError
from profclient.loopback import COMMON, tunnel
from profclient.serve import OneTrace

TOLD_EVENTS: Final = 200_000  # fewer are written before anybody wonders
TOLD_SECONDS: Final = 3.0


@click.command("open")
@click.argument("trace", default="")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Serve at this port, for a tunnel, whose line is printed.",
)
@part_options
def open_trace(
    trace: str,
    no_browser: bool,
    port: int,
    window: str | None,
    step: str | None,
    min_duration: str | None,
    redact: str | None,
) -> None:
    """Show a trace in a browser, with Perfetto.

    profctl serves only this trace, on loopback, under an address that nobody can guess, until
    the browser has fetched the trace once or you press Ctrl-C. The trace stays on your machine:
    Perfetto's page works inside the browser.
    """
    part = part_query(window, step, min_duration, redact)
    with tempfile.TemporaryFile(prefix="profctl-open-") as file:
        with traces() as source:
            found = source.get(trace)
            warn_if_beyond(found, part)
            if found["events"] >= TOLD_EVENTS:
                say(f"writing the timeline of {found['events']:,} events; --step or --window makes a smaller one …")
            written = copy(told(source.ask("export", found["id"], format="perfetto", gzip=False, **part)), file)
        try:
            served = OneTrace(file, written, found["title"] or found["id"], port)
        except OSError as error:
            raise UsageError(f"port {port} cannot be used: {error.strerror}; leave --port out.") from error
        with closing(served), ExitStack() as ending:
            click.echo(served.url)
            if no_browser or not browser.browse(served, ending):
                say(
                    f"open this address in a browser on this machine; from another one: "
                    f"{tunnel(served.address, served.port)}, and there the same "
                    f"address with {COMMON} in the place of {served.address}"
                )
            say(f"{size(written)}; profctl serves the trace once, or until Ctrl-C")
            served.wait()


def told(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same pieces. Says how much has come, each TOLD_SECONDS."""
    written, said = 0, time.monotonic()
    for piece in pieces:
        written += len(piece)
        if (now := time.monotonic()) >= said + TOLD_SECONDS:
            said = now
            say(f"{size(written)} …")
        yield piece
