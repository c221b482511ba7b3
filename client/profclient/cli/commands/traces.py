"""`profctl list|show|pin|unpin|share|rm`."""

from __future__ import annotations

import os
from typing import Any

import click
from profproto.v1 import capture_pb2

from profclient.as_json import capture_json
from profclient.cli.backend import traces
from profclient.cli.captured_view import heading
from profclient.cli.fleet_options import of_fleet, taken_up
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, say, short, table
from profclient.cli.summary_view import print_capture, print_summary
from profclient.cli.units import ago, duration, size
from profclient.connection import Daemon
from profclient.errors import ClientError, NotFoundError, UsageError
from profclient.traces import RemoteTraces, is_capture

ALL = 1_000_000  # more than any store holds
DAEMON_LISTS_MAX = 1000  # what a daemon lists at most
TITLE_CHARS = 24  # of a title: less does not tell traces apart


@click.command("list")
@click.option(
    "--limit", type=click.IntRange(0, 10_000), default=20, show_default=True, help="Number of traces; 0 = all."
)
@json_option
def list_traces(limit: int, as_json: bool) -> None:
    """List stored traces, the newest first."""
    with traces() as source:
        found = source.newest(limit + 1 if limit else ALL)
        capped = isinstance(source, RemoteTraces) and len(found) == DAEMON_LISTS_MAX
    more = bool(limit) and len(found) > limit
    if more:
        found.remove(_spare(found))
    _print_list(found, as_json)
    if more:
        say("… there are more traces; --limit N shows N, your own before those shared with you, --limit 0 all.")
    elif capped:
        say(f"… a daemon lists its newest {DAEMON_LISTS_MAX:,} traces; the store may have more.")


def _spare(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The one that is left out: the oldest, of those that others share where there are any."""
    own = os.getuid()
    shared = [trace for trace in found if trace["owner_uid"] != own] if own else []  # root's list is of all alike
    return (shared or found)[-1]


def _print_list(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        emit_json(found)
        return
    if not found:
        say("No traces yet. `profctl start` records one, `profctl import FILE` brings one in.")
        return
    rows = [
        (
            trace["id"],
            ago(trace["created_ns"]),
            trace["owner"],
            trace["source"],
            f"{trace['events']:,}",
            duration(trace["end_ns"] - trace["start_ns"] if trace["start_ns"] and trace["end_ns"] else None),
            size(trace["bytes"]),
            "-" if trace["rank"] is None else str(trace["rank"]),
            "pinned" if trace["pinned"] else "-",
            short(trace["title"]),
        )
        for trace in found
    ]
    columns = ("TRACE", "WHEN", "OWNER", "SOURCE", "EVENTS", "SPAN", "SIZE", "RANK", "PINNED", "TITLE")
    spare, right = ("SIZE", "OWNER", "SPAN"), ("EVENTS", "SPAN", "SIZE", "RANK")
    table(columns, rows, right=right, wide=("TITLE",), spare=spare, least=TITLE_CHARS, nothing=("-",))


@click.command()
@click.argument("trace", default="")
@taken_up
@json_option
def show(trace: str, as_json: bool, **values: Any) -> None:
    """Summarise a trace or a capture. Of a capture a store knows its traces alone."""
    if (record := of_fleet(trace, values)) is not None:
        from profclient.cli import fleet_commands

        fleet_commands.show(record, as_json)
        return
    offline = click.get_current_context().find_root().obj is not None
    if is_capture(trace):
        (_show_stored if offline else _show_capture)(trace, as_json)
        return
    try:
        with traces() as source:
            summary = source.ask("summary", trace).value()
    except NotFoundError:
        if not trace or offline or trace[0].isdigit():  # ids of captures begin with a letter
            raise
        _show_capture(trace, as_json)
        return
    if as_json:
        emit_json(summary)
    else:
        print_summary(summary)


def _show_capture(capture: str, as_json: bool) -> None:
    with Daemon() as daemon:
        found = daemon.call(daemon.captures.GetCapture, capture_pb2.CaptureRef(id=capture))
        if as_json:
            emit_json(capture_json(found))
        else:
            print_capture(daemon, found)


def _show_stored(capture: str, as_json: bool) -> None:
    with traces() as source:
        answer = source.ask("traces", capture).value()
    if as_json:
        emit_json(answer)
        return
    click.echo(heading(answer))
    rows = [
        ("-" if one["rank"] is None else str(one["rank"]), one["host"] or "-", one["trace"], f"{one['events']:,}")
        for one in answer["traces"]
    ]
    table(("RANK", "HOST", "TRACE", "EVENTS"), rows, right=("RANK", "EVENTS"))


@click.command()
@click.argument("trace", default="")
def pin(trace: str) -> None:
    """Keep a trace when the store is full."""
    with traces() as source:
        say(f"{source.pin(trace, True)['id']} is pinned.")


@click.command()
@click.argument("trace", default="")
def unpin(trace: str) -> None:
    """Let the store delete a trace again when it is full."""
    with traces() as source:
        say(f"{source.pin(trace, False)['id']} is no longer pinned.")


@click.command()
@click.argument("trace")
@click.option("--with", "users", multiple=True, help="A user (name or uid), or '*' for all users. Repeatable.")
@click.option("--nobody", is_flag=True, help="Share the trace with nobody any more.")
def share(trace: str, users: tuple[str, ...], nobody: bool) -> None:
    """Let other users read a trace."""
    if bool(users) == nobody:
        raise UsageError("no user was named. Give --with USER (or '*'), or --nobody to end all sharing.")
    with traces() as source:
        readers = source.share(trace, users)["shared_with"]
    say(f"the trace is readable by {', '.join(readers)}." if readers else "the trace is readable by its owner alone.")


@click.command()
@click.argument("ids", nargs=-1, required=True)
def rm(ids: tuple[str, ...]) -> None:
    """Delete traces."""
    with traces() as source:
        for trace in ids:
            try:
                say(f"{source.delete(trace)} is deleted.")
            except NotFoundError as error:
                raise _not_a_trace(trace) or error from None


def _not_a_trace(name: str) -> NotFoundError | None:
    """A sentence for the id of a capture; None where it is no capture's either."""
    if click.get_current_context().find_root().obj is not None:
        return None  # a store without a daemon knows no captures
    try:
        with Daemon() as daemon:
            capture = daemon.call(daemon.captures.GetCapture, capture_pb2.CaptureRef(id=name))
    except ClientError:
        return None
    its = [target.trace for target in capture.targets if target.trace]
    if not its:
        return NotFoundError(f"{capture.id} is a capture, and it has no trace.")
    return NotFoundError(f"{capture.id} is a capture; its traces are deleted with: profctl rm {' '.join(its)}")
