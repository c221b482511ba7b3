"""`--hosts --via`: which hosts a command speaks to, and how it reaches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profclient.cli.options import Function
from profclient.cli.output import one_line, say
from profclient.errors import ClientError, NotFoundError, UnreachableError, UsageError
from profclient.text import printable

if TYPE_CHECKING:
    from profclient.fleet.records import Record
    from profclient.fleet.slurm import Job
    from profclient.fleet.way import Way

SLURM = "slurm"
SSH = "ssh -o BatchMode=yes {host}"
T = TypeVar("T")


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


def job_options(function: Function) -> Function:
    """`fleet_options`, and --here: a job of Slurm's is recorded wherever it runs, unless that is said."""
    here = click.option("--here", is_flag=True, help="With --job: on this host alone, wherever Slurm runs the job.")
    return fleet_options(here(function))


def taken_up(function: Function) -> Function:
    """The same for a command about a capture that is there, and --job: of Slurm, whose nodes have it."""
    job = click.option(
        "--job", "jobs", multiple=True, help="Reach its hosts by way of this job of Slurm's, which it is of."
    )
    return fleet_options(job(function))


def way(values: dict[str, Any]) -> Way | None:
    """The hosts that were named, or those of a job of Slurm's that runs elsewhere, too; None: this host is meant.

    Their options are taken out of `values`. Raises UsageError.
    """
    named = values.pop("hosts")
    given = {name: values.pop(name) for name in ("via", "remote_python", "fanout")}
    stays = values.pop("here", True)
    if given["via"] == SLURM:
        return _of_job(named, given, values)
    if not (named or given["via"] or stays) and (found := _elsewhere(values)) is not None:
        return _of_nodes(found, named, given)
    if not named:
        if wrong := next((name for name, value in given.items() if value), None):
            raise UsageError(f"--{wrong.replace('_', '-')} needs --hosts: without it the command is about this host.")
        return None
    from profclient.fleet.hostlist import hosts
    from profclient.fleet.way import FANOUT, Way

    return Way(tuple(hosts(named)), given["via"] or SSH, given["remote_python"] or "", given["fanout"] or FANOUT)


def _of_job(named: tuple[str, ...], given: dict[str, Any], values: dict[str, Any]) -> Way:
    """The way into the job of --job, whose raw id goes into `values`. Raises ClientError."""
    if len(jobs := values.get("jobs", ())) != 1:
        raise UsageError("--via slurm needs one --job, whose nodes are the hosts.")
    from profclient.fleet import slurm

    job = _beside_imports(lambda: slurm.job(jobs[0]))
    values["jobs"] = (job.id,)
    return _of_nodes(job, named, given)


def _elsewhere(values: dict[str, Any]) -> Job | None:
    """The job of --job, where Slurm runs it on other hosts; one that is here alone gets its raw id in `values`."""
    jobs = values.get("jobs", ())
    if len(jobs) != 1 or values.get("pids"):
        return None
    from profclient.fleet import slurm
    from profclient.fleet.hostlist import hosts

    try:
        job = _beside_imports(lambda: slurm.job_elsewhere(jobs[0]))
    except UnreachableError as error:
        say(f"note: {one_line(str(error))} The job is looked for on this host alone.")
        return None
    if job is None:
        return None
    values["jobs"] = (job.id,)
    if [node for part in job.parts for node in hosts((part.nodes,))] == [slurm.here()]:
        return None
    nodes = ", ".join(part.nodes for part in job.parts)
    say(f"Slurm runs job {job.id} on {printable(nodes)}, and carries this there; --here stays on this host.")
    return job


def _beside_imports(ask: Callable[[], T]) -> T:
    """The answer; gRPC and asyncio are imported while the controller thinks: both take a tenth of a second."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask)
        from profclient.fleet import way  # noqa: F401
    return asked.result()


def _of_nodes(job: Job, named: tuple[str, ...], given: dict[str, Any]) -> Way:
    """The way to the job's nodes, or those of them that were named. Raises UsageError."""
    from profclient.fleet import slurm
    from profclient.fleet.hostlist import hosts
    from profclient.fleet.way import FANOUT_MAX, Way

    vias = [(slurm.via(job.id, part), tuple(hosts((part.nodes,)))) for part in job.parts]
    there = [host for _, nodes in vias for host in nodes]
    wanted = hosts(named) if named else there
    absent = dict.fromkeys(set(wanted) - set(there), f"Slurm's job {job.id} has no such node, or has it no more")
    if len(absent) == len(wanted):
        raise UsageError(f"--hosts names no node of Slurm's job {job.id}, which has {', '.join(there[:8])}.")
    fanout = given["fanout"] or FANOUT_MAX
    python = given["remote_python"] or ""
    return Way(tuple(wanted), vias[0][0], python, fanout, tuple(vias[1:]), absent, job.left_s)


def of_fleet(capture: str, values: dict[str, Any], *, part: bool = True) -> Record | None:
    """The capture of many hosts that is meant, if one is: by --hosts or --via, or by its id, which begins with f.

    `part`: None, too, where nothing says which hosts it has, and this host has its part of it. Raises UsageError for
    hosts without an id, NotFoundError where nothing says which hosts it has.
    """
    if values["jobs"] and not values["hosts"] and values["via"] is None:
        values["via"] = SLURM
    if values["jobs"] and values["via"] != SLURM:
        raise UsageError(
            "--job names a job of Slurm's, whose nodes are the hosts: give it alone, or --hosts and --via."
        )
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
