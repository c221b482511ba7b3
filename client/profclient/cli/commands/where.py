"""`profctl where`."""

from __future__ import annotations

from typing import Any

import click
from profproto.v1 import capture_pb2

from profclient.cli.options import json_option, selector, selector_options
from profclient.cli.output import emit_json
from profclient.cli.stacks_view import print_stacks
from profclient.connection import Daemon


@click.command()
@selector_options
@click.option("--native", is_flag=True, help="Print native frames, too: pauses each process while it is read.")
@json_option
@click.pass_context
def where(ctx: click.Context, /, native: bool, as_json: bool, **values: Any) -> None:
    """Show the stacks of processes right now, identical stacks as one group, threads that wait last."""
    request = capture_pb2.WhereRequest(selector=selector(values), native=native)
    with Daemon() as daemon:
        processes = daemon.call(daemon.captures.Where, request).processes
    if as_json:
        emit_json([_process_json(process) for process in processes])
    else:
        print_stacks(processes)
    failed = sum(bool(process.error) for process in processes)
    ctx.exit(0 if not failed else 1 if failed == len(processes) else 6)


def _process_json(process: capture_pb2.ProcessStacks) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "rank": process.rank if process.HasField("rank") else None,
        "command": process.command,
        "error": process.error or None,
        "threads": [
            {
                "thread": thread.thread,
                "name": thread.name or None,
                "active": thread.active,
                "owns_gil": thread.owns_gil,
                "incomplete": thread.incomplete,
                "joins": thread.joins or None,
                "lock_holder": thread.lock_holder or None,
                "frames": [
                    {"function": frame.function, "file": frame.file, "line": frame.line} for frame in thread.frames
                ],
            }
            for thread in process.threads
        ],
    }
