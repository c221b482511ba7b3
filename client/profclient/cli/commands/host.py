"""`profctl doctor|disable|enable`."""

from __future__ import annotations

from typing import Any

import click
from profproto.v1 import capture_pb2, host_pb2

from profclient.cli.options import json_option
from profclient.cli.output import emit_json, printable, say
from profclient.cli.units import ago, size
from profclient.connection import Daemon

MARK = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check what could stand in a capture's way. The check changes nothing. A problem makes the exit code 1."""
    with Daemon() as daemon:
        status = daemon.call(daemon.host.GetHostStatus, host_pb2.GetHostStatusRequest())
    _add_observer(status)
    if as_json:
        emit_json(status_json(status))
    else:
        _print(status)
    ctx.exit(1 if any(check.verdict == "problem" for check in status.checks) else 0)


def _add_observer(status: host_pb2.HostStatus) -> None:
    """A check of ours beside the daemon's: which builds are loaded is decided where the jobs are, not in the daemon."""
    from profclient.torch import installed

    found = installed.state()
    if found is None:
        return
    version, built = found
    if built:
        detail, fix = f"built for torch {version}, the one beside profctl", ""
    else:
        detail = f"not built for torch {version}, the one beside profctl: attached jobs have no operators recorded"
        fix = "profctl torch build"
    status.checks.add(name="torch observer", verdict="ok" if built else "warning", detail=detail, fix=fix)


def status_json(status: host_pb2.HostStatus) -> dict[str, Any]:
    """The status for machines."""
    plain = [
        "version",
        "host",
        "started_ns",
        "pid",
        "mode",
        "enabled",
        "disabled_why",
        "state_dir",
        "store_bytes",
        "store_limit_bytes",
        "disk_free_bytes",
        "captures_active",
    ]
    return {
        **{name: getattr(status, name) for name in plain},
        "sources": [
            {"name": s.name, "available": s.available, "detail": s.detail, "processes": s.processes}
            for s in status.sources
        ],
        "checks": [
            {"name": c.name, "verdict": c.verdict, "detail": c.detail, "fix": c.fix or None} for c in status.checks
        ],
    }


def _print(status: host_pb2.HostStatus) -> None:
    click.echo(
        f"profd {status.version} on {status.host}: pid {status.pid}, {status.mode} mode, "
        f"since {ago(status.started_ns)}, "
        f"{'captures allowed' if status.enabled else 'captures REFUSED: ' + printable(status.disabled_why)}"
    )
    click.echo(
        f"store {status.state_dir}: {size(status.store_bytes)} of {size(status.store_limit_bytes)}, "
        f"{size(status.disk_free_bytes)} free on the disk\n"
    )
    for source in status.sources:
        click.echo(f"{'ok     ' if source.available else 'off    '}  source {source.name}: {printable(source.detail)}")
    for check in status.checks:
        click.echo(f"{MARK.get(check.verdict, check.verdict)}  {check.name}: {printable(check.detail)}")
        if check.fix:
            click.echo(f"         → {printable(check.fix)}")


@click.command()
@click.option("--why", default="", help="Reason, shown to every user whose capture is refused.")
def disable(why: str) -> None:
    """Refuse new captures on this host until `profctl enable`. Running captures go on."""
    _set(False, why)


@click.command()
def enable() -> None:
    """Allow captures again."""
    _set(True, "")


def _set(enabled: bool, why: str) -> None:
    with Daemon() as daemon:
        request = capture_pb2.SetEnabledRequest(enabled=enabled, why=why)
        now = daemon.call(daemon.captures.SetEnabled, request)
    say("captures are allowed." if now.enabled else f"captures are refused: {now.why or 'no reason given'}.")
