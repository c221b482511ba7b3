"""`profctl where`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from profproto.v1 import capture_pb2

from profclient.cli.options import json_option, selector, selector_options
from profclient.cli.output import emit_json, printable
from profclient.connection import Daemon

FRAMES_SHOWN = 40
NO_FRAMES = "(no Python frames)"


@click.command()
@selector_options
@click.option("--native", is_flag=True, help="Print native frames, too.")
@json_option
@click.pass_context
def where(ctx: click.Context, /, native: bool, as_json: bool, **values: Any) -> None:
    """Show the stacks of processes right now, identical stacks as one group."""
    request = capture_pb2.WhereRequest(selector=selector(values), native=native)
    with Daemon() as daemon:
        processes = daemon.call(daemon.captures.Where, request).processes
    if as_json:
        emit_json([_process_json(process) for process in processes])
    else:
        _print(processes)
    failed = sum(bool(process.error) for process in processes)
    ctx.exit(0 if not failed else 1 if failed == len(processes) else 6)


def _process_json(process: capture_pb2.ProcessStacks) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "command": process.command,
        "error": process.error or None,
        "threads": [
            {
                "thread": thread.thread,
                "name": thread.name or None,
                "active": thread.active,
                "owns_gil": thread.owns_gil,
                "frames": [
                    {"function": frame.function, "file": frame.file, "line": frame.line} for frame in thread.frames
                ],
            }
            for thread in process.threads
        ],
    }


def _print(processes: Sequence[capture_pb2.ProcessStacks]) -> None:
    groups: dict[tuple[str, ...], list[str]] = {}
    for process in processes:
        if process.error:
            click.echo(f"pid {process.pid}: {printable(process.error)}\n")
        for thread in process.threads:
            state = "GIL" if thread.owns_gil else "running" if thread.active else "waiting"
            who = f"pid {process.pid} {printable(thread.name) or f'thread {thread.thread}'} ({state})"
            groups.setdefault(_stack(thread) or (NO_FRAMES,), []).append(who)
    # Where most threads are comes first: a hang shows as one large group.
    for stack, threads in sorted(groups.items(), key=lambda group: -len(group[1])):
        for who, times in Counter(threads).items():
            click.echo(who if times == 1 else f"{who} x{times}")
        click.echo("\n".join(f"    {frame}" for frame in stack[:FRAMES_SHOWN]))
        if len(stack) > FRAMES_SHOWN:
            click.echo(f"    … {len(stack) - FRAMES_SHOWN} outer frames (--json has them)")
        click.echo()


def _stack(thread: capture_pb2.ThreadStack) -> tuple[str, ...]:
    return tuple(printable(f"{frame.function} ({frame.file}:{frame.line})") for frame in thread.frames)
