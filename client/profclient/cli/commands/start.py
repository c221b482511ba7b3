"""`profctl start`: the main job."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from profproto.v1 import capture_pb2

from profclient.as_json import capture_json
from profclient.cli import capture_view, follow
from profclient.cli.estimate_view import estimates_json, print_estimates
from profclient.cli.fleet_options import job_options, way
from profclient.cli.interrupts import interrupts
from profclient.cli.options import OfProcesses, capture_options, json_option, options, selector, selector_options
from profclient.cli.output import emit_json, one_line, say
from profclient.cli.summary_view import print_capture
from profclient.cli.units import parse_duration_ns
from profclient.connection import Daemon
from profclient.errors import Interrupted, UnreachableError, UsageError

if TYPE_CHECKING:
    from profclient.fleet.way import Way


@click.command(cls=OfProcesses)
@selector_options
@job_options
@capture_options
@click.option(
    "--sample", type=click.IntRange(1, 4096), help="With --hosts: record so many ranks, spread over the hosts."
)
@click.option("--all", "all_ranks", is_flag=True, help="With --hosts: record every rank. [8, where there are over 16]")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    help="With --hosts: bring the traces into this folder when all is recorded, as `profctl collect` does.",
)
@click.option("--start-in", help="Begin the windows of all processes together, after this time.")
@click.option("--dry-run", is_flag=True, help="Print the plan and the expected cost; touch no process.")
@click.option("--detach", is_flag=True, help="Return at once; `profctl wait` waits for the end.")
@click.option("--timeout", help="Stop waiting after this time; the capture goes on.")
@click.option("--request-id", help="Id of the request. One id never starts two captures.")
@json_option
@click.pass_context
def start(
    ctx: click.Context,
    /,
    sample: int | None,
    all_ranks: bool,
    to: Path | None,
    start_in: str | None,
    dry_run: bool,
    detach: bool,
    timeout: str | None,
    request_id: str | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Profile running processes.

    Without --duration and --iterations the capture goes on until Ctrl-C, where the source allows that.

    \b
      profctl start --pid 1234 --duration 10s
      profctl start --pid 1234 --iterations 5 --shapes --stacks
      profctl start --job 77 --duration 2s --dry-run
      profctl start --hosts 'node[001-064]' --job 77 --duration 2s
      profctl start --job 4711 --iterations 5 --all              # of Slurm: on all of its nodes
    """
    hosts = way(values)
    chosen = selector(values)
    asked = options(values)
    _check_window(asked)
    if start_in is not None and hosts is None:
        import time

        asked.start_at_ns = time.time_ns() + parse_duration_ns(start_in)
    waiting = None if timeout is None else parse_duration_ns(timeout) / 1e9
    if hosts is not None:
        taken = _sample(sample, all_ranks, chosen)
        if to is not None and (detach or dry_run):
            raise UsageError("--to brings the traces at the end: give it without --detach and without --dry-run.")
        ctx.exit(_on_hosts(hosts, chosen, asked, taken, to, start_in, dry_run, detach, waiting, request_id, as_json))
    if sample:
        raise UsageError("--sample needs --hosts or --via slurm: on one host all ranks are recorded.")
    if to is not None:
        raise UsageError("--to needs --hosts; of this host: profctl export CAPTURE -f parquet --to DIR")
    with _of_slurm(chosen), Daemon() as daemon:
        if dry_run:
            _dry_run(daemon, chosen, asked, as_json)
            return
        open_ended = not (asked.duration_ns or asked.iterations)
        if open_ended and detach:
            raise UsageError("--detach needs --duration or --iterations: otherwise nothing would end the capture.")
        request = capture_pb2.StartCaptureRequest(
            request_id=request_id or uuid.uuid4().hex, selector=chosen, options=asked, open_ended=open_ended
        )
        if asked.force:
            _say_risks(daemon, chosen, asked)
        if detach:
            capture = daemon.call(daemon.captures.StartCapture, request)
        else:
            record = _record_until_stopped if open_ended else _record
            capture = record(daemon, request, as_json, waiting)
        _answer(daemon, capture, as_json)
    ctx.exit(0 if detach and capture_view.live(capture) else capture_view.exit_code(capture))


@contextmanager
def _of_slurm(chosen: capture_pb2.Selector) -> Iterator[None]:
    """Where Slurm is and no daemon, a login node most likely: UnreachableError says that it has no such job, either."""
    try:
        yield
    except UnreachableError as error:
        if not chosen.jobs or shutil.which("squeue") is None:
            raise
        raise UnreachableError(
            f"{error}\nSlurm runs no such job on other hosts, as far as it was asked: `squeue` lists its jobs."
        ) from error


def _check_window(asked: capture_pb2.Options) -> None:
    """Raises UsageError."""
    if asked.duration_ns and asked.iterations:
        raise UsageError("give --duration or --iterations, not both.")
    if asked.HasField("begin_step") and not asked.iterations:
        raise UsageError("--at-step needs --iterations: how many steps from that one on.")


def _sample(sample: int | None, all_ranks: bool, chosen: capture_pb2.Selector) -> int | None:
    """As `Order.sample` has it. Raises UsageError."""
    if sample and (all_ranks or chosen.ranks):
        raise UsageError("--sample chooses the ranks: give it without --all and without --rank.")
    return 0 if all_ranks else sample


def _on_hosts(
    hosts: Way,
    chosen: capture_pb2.Selector,
    asked: capture_pb2.Options,
    sample: int | None,
    to: Path | None,
    start_in: str | None,
    dry_run: bool,
    detach: bool,
    timeout: float | None,
    request_id: str | None,
    as_json: bool,
) -> int:
    """The same on many hosts; the exit code."""
    from profclient.cli import fleet_commands
    from profclient.fleet.drive import FleetOrder

    lead_ns = 0 if start_in is None else parse_duration_ns(start_in)
    order = FleetOrder(fleet_commands.order_id(request_id), chosen, asked, lead_ns, sample)
    if dry_run:
        return fleet_commands.dry_run(hosts, order, as_json)
    return fleet_commands.start(hosts, order, detach=detach, timeout=timeout, as_json=as_json, to=to)


def _say_risks(daemon: Daemon, chosen: capture_pb2.Selector, asked: capture_pb2.Options) -> None:
    """What may happen to the jobs, as the plans of their sources have it: whoever insists hears it beforehand."""
    request = capture_pb2.EstimateCaptureRequest(selector=chosen, options=asked)
    estimates = daemon.call(daemon.captures.EstimateCapture, request).targets
    for risk in dict.fromkeys(risk for estimate in estimates for risk in estimate.risks):
        say(f"warning: {one_line(risk)}")


def _dry_run(daemon: Daemon, chosen: capture_pb2.Selector, asked: capture_pb2.Options, as_json: bool) -> None:
    request = capture_pb2.EstimateCaptureRequest(selector=chosen, options=asked)
    estimates = daemon.call(daemon.captures.EstimateCapture, request).targets
    if as_json:
        emit_json(estimates_json(estimates))
    else:
        print_estimates(estimates)


def _record(
    daemon: Daemon, request: capture_pb2.StartCaptureRequest, as_json: bool, timeout: float | None
) -> capture_pb2.Capture:
    """A bounded capture until it is over; with Ctrl-C it goes on without us."""
    capture = None
    try:
        capture = daemon.call(daemon.captures.StartCapture, request)
        return follow.until_over(daemon, capture, quiet=as_json, timeout=timeout)
    except KeyboardInterrupt:
        if capture is None:
            raise
        raise Interrupted(
            f"capture {capture.id} goes on; `profctl wait {capture.id}` waits, `profctl stop {capture.id}` ends it."
        ) from None


def _record_until_stopped(
    daemon: Daemon, request: capture_pb2.StartCaptureRequest, as_json: bool, timeout: float | None
) -> capture_pb2.Capture:
    """An open-ended capture, which Ctrl-C ends, until it is over."""
    with interrupts() as interrupted:
        capture = daemon.call(daemon.captures.StartCapture, request)
        this = capture_pb2.CaptureRef(id=capture.id)
        interrupted.ask(lambda: daemon.call(daemon.captures.StopCapture, this))
        return follow.until_over(daemon, capture, quiet=as_json, lease=capture.open_ended, timeout=timeout)


def _answer(daemon: Daemon, capture: capture_pb2.Capture, as_json: bool) -> None:
    if as_json:
        emit_json(capture_json(capture))
    elif capture_view.live(capture):
        say(f"capture {capture.id} is running; `profctl wait {capture.id}` waits for it.")
    else:
        print_capture(daemon, capture)
