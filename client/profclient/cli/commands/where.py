"""`profctl where`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from profproto.v1 import capture_pb2

from profclient.cli.collectives_view import collectives_json, frame_json, print_collectives
from profclient.cli.fleet_options import job_options, way
from profclient.cli.options import OfProcesses, json_option, selector, selector_options
from profclient.cli.output import emit_json, one_line, say
from profclient.cli.stacks_view import print_stacks
from profclient.connection import Daemon
from profclient.errors import ClientError, UsageError

if TYPE_CHECKING:
    from profclient.fleet.way import Way


@click.command(cls=OfProcesses)
@selector_options
@job_options
@click.option("--native", is_flag=True, help="Print native frames, too: pauses each process while it is read.")
@json_option
@click.pass_context
def where(ctx: click.Context, /, native: bool, as_json: bool, **values: Any) -> None:
    """Show the stacks of processes right now, identical stacks as one group, threads that wait last."""
    hosts = way(values)
    request = capture_pb2.WhereRequest(selector=selector(values), native=native)
    if hosts is not None:
        ctx.exit(_on_hosts(hosts, request, as_json))
    with Daemon() as daemon:
        answer = daemon.call(daemon.captures.Where, request)
    processes = answer.processes
    if as_json:
        emit_json(_json(answer))
    else:
        print_stacks(processes)
        for job in answer.collectives:
            print_collectives(job)
    ctx.exit(_code([bool(process.error) for process in processes]))


def _code(failed: list[bool]) -> int:
    return 0 if not any(failed) else 1 if all(failed) else 6


def _on_hosts(hosts: Way, request: capture_pb2.WhereRequest, as_json: bool) -> int:
    """The same on many hosts; a host that does not answer is in the answer, too."""
    from profclient.cli import fleet_commands

    if request.selector.pids:
        raise UsageError("a pid means one process of one host: with --hosts give --user, --job, --gpu or --rank.")
    answers = fleet_commands.where(hosts, request)
    told = {host: answer for host, answer in answers.items() if not isinstance(answer, ClientError)}
    found = [(host, process) for host, answer in told.items() for process in answer.processes]
    silent = {host: str(answer) for host, answer in answers.items() if isinstance(answer, ClientError)}
    if as_json:
        of_hosts = [{"host": host, "pid": None, "error": why} for host, why in silent.items()]
        emit_json([{"host": host, **each} for host, answer in told.items() for each in _json(answer)] + of_hosts)
    else:
        print_stacks([process for _, process in found], [host for host, _ in found])
        for host, answer in told.items():
            for job in answer.collectives:
                print_collectives(job, host)
        for host, why in silent.items():
            say(f"{host}: {one_line(why)}")
    return _code([*(bool(process.error) for _, process in found), *(True for _ in silent)])


def _json(answer: capture_pb2.WhereResponse) -> list[dict[str, Any]]:
    """Each process, with what is said of its job's collectives."""
    told = [(collectives_json(job), job.pids) for job in answer.collectives]
    said = {pid: job for job, pids in told for pid in pids}
    return [{**_process_json(process), "collectives": said.get(process.pid)} for process in answer.processes]


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
                "waits_gil": thread.waits_gil,
                "stopped": thread.stopped,
                "frames": [frame_json(frame) for frame in thread.frames],
            }
            for thread in process.threads
        ],
    }
