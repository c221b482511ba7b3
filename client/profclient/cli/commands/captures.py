"""`profctl captures|stop|wait|retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from profproto.v1 import capture_pb2

from profclient.as_json import capture_json, state_name
from profclient.cli import capture_view, follow
from profclient.cli.fleet_options import of_fleet, taken_up
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, say, table
from profclient.cli.summary_view import print_capture
from profclient.cli.units import ago, duration, parse_duration_ns
from profclient.connection import Daemon

if TYPE_CHECKING:
    from profclient.fleet.records import Record


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of captures.")
@click.option("--many-hosts", is_flag=True, help="Captures of many hosts that were begun here; no host is asked.")
@json_option
def captures(limit: int, many_hosts: bool, as_json: bool) -> None:
    """List captures, the latest first. REASON is the word of the program that asked for one itself.

    With --many-hosts those that `start --hosts`, or of a job of Slurm's, began here; `profctl show` asks the hosts.
    """
    if many_hosts:
        _of_many_hosts(limit, as_json)
        return
    with Daemon() as daemon:
        request = capture_pb2.ListCapturesRequest(limit=limit)
        answer = daemon.call(daemon.captures.ListCaptures, request)
    found = answer.captures
    if answer.left_out:
        say(f"{answer.left_out} earlier captures are left out: the answer had no room for them.")
    if as_json:
        emit_json([capture_json(capture) for capture in found])
        return
    if not found:
        say("No captures yet. `profctl start --pid PID --duration 5s` makes one.")
        return
    rows = [
        (
            capture.id,
            ago(capture.created_ns),
            capture.owner,
            state_name(capture.state),
            duration(capture.options.duration_ns or None),
            ", ".join(str(target.pid) for target in capture.targets),
            ", ".join(target.trace for target in capture.targets if target.trace) or "-",
            capture.reason or "-",
        )
        for capture in found
    ]
    wide = ("PIDS", "TRACES", "REASON")
    table(("CAPTURE", "WHEN", "OWNER", "STATE", "WINDOW", *wide), rows, wide=wide, nothing=("-",))


def _of_many_hosts(limit: int, as_json: bool) -> None:
    from profclient.fleet import records

    found = records.newest(limit)
    if as_json:
        emit_json([_many_hosts_json(written_ns, record) for written_ns, record in found])
        return
    if not found:
        say("No captures of many hosts were begun here. `profctl start --hosts 'n[1-2]' --job 77 -d 5s` makes one.")
        return
    rows = [
        (
            record.id,
            ago(written_ns),
            f"{len(record.way.hosts):,}",
            f"{len(record.left_out):,}",
            ", ".join(record.way.hosts),
            record.collected or "-",
        )
        for written_ns, record in found
    ]
    wide = ("NAMES", "COLLECTED")
    table(("CAPTURE", "WHEN", "HOSTS", "LEFT OUT", *wide), rows, wide=wide, nothing=("-",))


def _many_hosts_json(written_ns: int, record: Record) -> dict[str, Any]:
    return {
        "capture": record.id,
        "begun_ns": written_ns,
        "hosts": list(record.way.hosts),
        "left_out": dict(record.left_out),
        "collected": record.collected or None,
    }


@click.command()
@click.argument("capture", default="")
@taken_up
@json_option
@click.pass_context
def stop(ctx: click.Context, /, capture: str, as_json: bool, **values: Any) -> None:
    """End a capture and keep what it recorded.

    One source cannot be stopped: kineto, once it has accepted a window. Its capture then runs to its end.
    """
    if (record := of_fleet(capture, values)) is not None:
        from profclient.cli import fleet_commands

        ctx.exit(fleet_commands.follow(record, stop=True, timeout=None, as_json=as_json))
    with Daemon() as daemon:
        stopped = daemon.call(daemon.captures.StopCapture, capture_pb2.CaptureRef(id=capture))
        _end(ctx, daemon, stopped, as_json, None)


@click.command()
@click.argument("capture", default="")
@click.option("--timeout", help="Stop waiting after this time; the capture goes on.")
@taken_up
@json_option
@click.pass_context
def wait(ctx: click.Context, /, capture: str, timeout: str | None, as_json: bool, **values: Any) -> None:
    """Wait for a capture to end, then print its result."""
    seconds = parse_duration_ns(timeout) / 1e9 if timeout else None
    if (record := of_fleet(capture, values)) is not None:
        from profclient.cli import fleet_commands

        ctx.exit(fleet_commands.follow(record, stop=False, timeout=seconds, as_json=as_json))
    with Daemon() as daemon:
        found = daemon.call(daemon.captures.GetCapture, capture_pb2.CaptureRef(id=capture))
        _end(ctx, daemon, found, as_json, seconds)


@click.command()
@click.argument("capture", default="")
@json_option
@click.pass_context
def retry(ctx: click.Context, capture: str, as_json: bool) -> None:
    """Decode the raw data of a failed capture again, as long as the data is kept."""
    with Daemon() as daemon:
        again = daemon.call(daemon.captures.RetryCapture, capture_pb2.CaptureRef(id=capture))
        _end(ctx, daemon, again, as_json, None)


def _end(
    ctx: click.Context, daemon: Daemon, capture: capture_pb2.Capture, as_json: bool, timeout: float | None
) -> None:
    capture = follow.until_over(daemon, capture, quiet=as_json, timeout=timeout)
    if as_json:
        emit_json(capture_json(capture))
    else:
        print_capture(daemon, capture)
    ctx.exit(capture_view.exit_code(capture))
