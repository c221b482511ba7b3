"""`--hosts --via`: which hosts a command speaks to, and how it reaches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from profclient.cli.options import Function
from profclient.errors import ClientError, NotFoundError, UsageError

if TYPE_CHECKING:
    from profclient.fleet.records import Record
    from profclient.fleet.way import Way

SLURM = "slurm"
SSH = "ssh -o BatchMode=yes {host}"


def fleet_options(function: Function) -> Function:
    """--hosts --via --remote-python --fanout."""
    for option in reversed(
        [
            click.option("--hosts", multiple=True, help="Do it on these hosts: 'node[001-064],login1'. Repeatable."),
            click.option(
                "--via",
                help=f"Command that reaches a host; slurm: srun, within the job of --job, whose nodes are the hosts. "
                f"[default: {SSH}]",
            ),
            click.option("--remote-python", help="Python on the hosts that has profclient. [default: this one's path]"),
            click.option(
                "--fanout",
                type=click.IntRange(1, 512),
                help="Number of hosts that are asked at once. [default: 64; of a Slurm job all]",
            ),
        ]
    ):
        function = option(function)
    return function


def taken_up(function: Function) -> Function:
    """The same for a command about a capture that is there, and --job, which says where `--via slurm` goes."""
    job = click.option("--job", "jobs", multiple=True, help="With --via slurm: the job that the capture is of.")
    return fleet_options(job(function))


def way(values: dict[str, Any]) -> Way | None:
    """The hosts that were named, if any; their options are taken out of `values`. Raises UsageError."""
    named = values.pop("hosts")
    given = {name: values.pop(name) for name in ("via", "remote_python", "fanout")}
    if given["via"] == SLURM:
        return _of_job(named, given, values)
    if not named:
        if wrong := next((name for name, value in given.items() if value), None):
            raise UsageError(f"--{wrong.replace('_', '-')} needs --hosts: without it the command is about this host.")
        return None
    from profclient.fleet.hostlist import hosts
    from profclient.fleet.way import FANOUT, Way

    return Way(tuple(hosts(named)), given["via"] or SSH, given["remote_python"] or "", given["fanout"] or FANOUT)


def _of_job(named: tuple[str, ...], given: dict[str, Any], values: dict[str, Any]) -> Way:
    """The way to the job's nodes, or those of them that were named. The raw id of the job goes into `values`.

    Raises ClientError.
    """
    from concurrent.futures import ThreadPoolExecutor

    from profclient.fleet import slurm

    if len(jobs := values.get("jobs", ())) != 1:
        raise UsageError("--via slurm needs one --job, whose nodes are the hosts.")
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(slurm.job, jobs[0])
        # gRPC and asyncio are imported while the controller answers: both take a tenth of a second.
        from profclient.fleet.hostlist import hosts
        from profclient.fleet.way import FANOUT_MAX, Way
    job = asked.result()
    values["jobs"] = (job.id,)
    vias = [(slurm.via(job.id, part), tuple(hosts((part.nodes,)))) for part in job.parts]
    there = [host for _, nodes in vias for host in nodes]
    wanted = hosts(named) if named else there
    absent = dict.fromkeys(set(wanted) - set(there), f"Slurm's job {job.id} has no such node, or has it no more")
    if len(absent) == len(wanted):
        raise UsageError(f"--hosts names no node of Slurm's job {job.id}, which has {', '.join(there[:8])}.")
    fanout = given["fanout"] or FANOUT_MAX
    return Way(tuple(wanted), vias[0][0], given["remote_python"] or "", fanout, tuple(vias[1:]), absent)


def of_fleet(capture: str, values: dict[str, Any], *, part: bool = True) -> Record | None:
    """The capture of many hosts that is meant, if one is: by --hosts or --via, or by its id, which begins with f.

    `part`: None, too, where nothing says which hosts it has, and this host has its part of it. Raises UsageError for
    hosts without an id, NotFoundError where nothing says which hosts it has.
    """
    if values["jobs"] and values["via"] != SLURM:
        raise UsageError("--job says where --via slurm goes: give both, or --hosts.")
    named = way(values)
    if named is None and not capture.startswith("f"):
        return None
    from profclient.fleet import records

    if named is not None:
        if not (capture.startswith("f") and len(capture) == 13):
            raise UsageError("--hosts and --via need the whole id of the capture: f and twelve hex digits.")
        return records.Record(capture, named)
    try:
        return records.find(capture)
    except NotFoundError:
        if part and _is_here(capture):
            return None
        raise


def _is_here(capture: str) -> bool:
    """Whether this host's daemon has its part of the capture."""
    from profproto.v1 import capture_pb2 as pb

    from profclient.connection import Daemon

    try:
        with Daemon() as daemon:
            daemon.call(daemon.captures.GetCapture, pb.CaptureRef(id=capture))
    except ClientError:
        return False
    return True
