"""`profctl open`."""

from __future__ import annotations

import urllib.parse
from typing import Any

import click

from profclient.cli.backend import folder, traces
from profclient.cli.commands.ui import serve
from profclient.cli.options import part_options, part_query, warn_if_beyond
from profclient.errors import UsageError
from profclient.traces import is_capture
from profclient.ui.perfetto import INSTALL, installed


@click.command("open")
@click.argument("trace", default="")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Serve at this port. [any that is free]")
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
    """Show a trace, or all ranks of a capture, in a browser, with Perfetto.

    profctl opens the page of `profctl ui` with Perfetto in it, and serves both on loopback, to your own processes,
    until Ctrl-C. The page asks nothing of the internet. Perfetto comes with the extra `perfetto` of profd. With --step,
    --window or --min-duration Perfetto gets that part of the trace alone.
    """
    part = part_query(window, step, min_duration, redact)
    if installed() is None:
        raise UsageError(
            f"Perfetto is not installed beside profctl: {INSTALL} in its environment brings it (16 MB). Without it: "
            "`profctl ui` shows the timeline, and `profctl export -f perfetto -o FILE` writes it for https://ui.perfetto.dev."
        )
    with traces() as source:
        if is_capture(trace):
            shown = source.ask("traces", trace).value()["capture"]
        else:
            warn_if_beyond(found := source.get(trace), part)
            shown = found["id"]
    serve(folder(), f"/perfetto/{shown}{_query(part)}", port, no_browser=no_browser)


def _query(part: dict[str, Any]) -> str:
    """The part, as the page's address has it."""
    given: dict[str, Any] = {"from": part["from_ns"], "to": part["to_ns"], "min": part["min_duration_ns"] or None}
    if part["first_step"] is not None:
        given["step"] = f"{part['first_step']}..{part['last_step'] or part['first_step']}"
    given["redact"] = ",".join(part["redact"]) or None
    given = {name: value for name, value in given.items() if value is not None}
    return f"?{urllib.parse.urlencode({**given, 'cut': 1})}" if given else ""
