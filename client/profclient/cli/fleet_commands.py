"""`start`, `wait`, `stop`, `show` and `where` for many hosts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from profproto.v1 import capture_pb2 as pb

from profclient.cli.estimate_view import estimates_json, print_blocks
from profclient.cli.fleet_view import FleetProgress, print_outcome
from profclient.cli.output import emit_json, one_line, say
from profclient.cli.units import duration
from profclient.errors import BusyError, ClientError, NotFoundError, TimeoutExpired, UnreachableError, UsageError
from profclient.fleet import records
from profclient.fleet.drive import Drive, FleetOrder, able_ranks, live, new_id
from profclient.fleet.host import Host
from profclient.fleet.machine import Fleet, HostState, Stand
from profclient.fleet.outcome import Outcome
from profclient.fleet.records import Record
from profclient.fleet.way import Way, each


def start(
    way: Way, order: FleetOrder, *, detach: bool, timeout: float | None, as_json: bool, to: Path | None = None
) -> int:
    """Record on all hosts and print what came of it; the exit code. `to`: bring the traces into this folder, too."""
    if order.selector.pids:
        raise UsageError("a pid means one process of one host: with --hosts give --user, --job, --gpu or --rank.")
    if not (order.options.duration_ns or order.options.iterations):
        raise UsageError(
            "a capture of many hosts needs --duration or --iterations: its windows end by themselves. "
            "This host alone (--here --job) can be recorded until Ctrl-C."
        )
    if to is not None:
        from profclient.cli import gathering  # here: others need nothing of it

        gathering.check(to, order.id)
    _say_time_left(way, order)
    with FleetProgress(order.id, as_json) as progress:
        drive = Drive(way, changed=progress.show, prepared=lambda fleet: _about_to_begin(drive, order, progress, fleet))
        fleet = _run(
            drive.record(order, detach=detach), timeout, lambda: _goes_on(order.id, drive.boundary_ns is not None)
        )
    _leave_out(order.id, {host: state.why for host, state in fleet.hosts.items() if _is_refused(state)})
    ranks = tuple(order.selector.ranks)
    outcome = Outcome(order.id, fleet.hosts, drive.clocks, ranks, drive.sampled_of, drive.step_times)
    if detach and outcome.live and not as_json:
        say(f"capture {order.id} is running; `profctl wait {order.id}` waits for it.")
        return 0
    if to is not None:
        return _brought(way, outcome, to, as_json)
    _print(outcome, as_json)
    return 0 if detach and outcome.live else outcome.exit_code


def _say_time_left(way: Way, order: FleetOrder) -> None:
    """Slurm ends a job that is out of time, and the relays in it: what was recorded then is on the nodes."""
    needed_s = (order.lead_ns + order.options.duration_ns) / 1e9
    if way.left_s is not None and needed_s >= way.left_s:
        left, window = duration(way.left_s * 1_000_000_000), duration(order.options.duration_ns)
        say(f"warning: by its time limit the job has {left} left, and the window takes {window}: it ends with the job")


def _brought(way: Way, outcome: Outcome, to: Path, as_json: bool) -> int:
    """Print what came of a capture and bring its traces, at once: no step of Slurm's joins a job that has ended."""
    from profclient.cli import gathering

    there = tuple(host for host, state in outcome.hosts.items() if state.capture is not None)
    rest = {host: state.why for host, state in outcome.hosts.items() if state.capture is None and state.why}
    if not as_json:
        print_outcome(outcome, following=not there)
    nothing = {"capture": outcome.id, "traces": [], "missing": []}
    written = gathering.gather(Record(outcome.id, way.to(there), rest), to) if there else nothing
    if as_json:
        emit_json({**outcome.to_json(), "collected": {"folder": str(to), **written}})
    elif there:
        gathering.print_gathered(written, to)
    return outcome.exit_code or gathering.code(written)


def order_id(request_id: str | None) -> str:
    """The fleet's id: a fresh one, or always the same for a request id."""
    return "f" + hashlib.sha256(request_id.encode()).hexdigest()[:12] if request_id else new_id()


def dry_run(way: Way, order: FleetOrder, as_json: bool) -> int:
    """Print what each host would record; 0 where all have something to."""
    drive = Drive(way)
    answers = _run(drive.prepare(order))
    failed = {host: error for host, error in answers.items() if isinstance(error, ClientError)}
    if as_json:
        emit_json(
            [
                {"host": host, "error": str(answer)}
                if isinstance(answer, ClientError)
                else {"host": host, "error": None, "targets": estimates_json(answer.targets)}
                for host, answer in answers.items()
            ]
        )
    else:
        for host, answer in answers.items():
            if isinstance(answer, ClientError):
                click.echo(f"host {host}: {one_line(str(answer))}\n")
                continue
            click.echo(f"host {host}:")
            print_blocks(answer.targets)
            click.echo()
        able = {host: able_ranks(answer) for host, answer in answers.items() if not isinstance(answer, ClientError)}
        if chosen := drive.choose(able):
            taken = sum(map(len, chosen.values()))
            click.echo(
                f"A capture takes {taken} of these {drive.sampled_of:,} ranks, spread over the hosts; --all takes all."
            )
        click.echo("No process was touched. The same command without --dry-run records.")
    return _code(len(failed), len(answers))


def follow(record: Record, *, stop: bool, timeout: float | None, as_json: bool) -> int:
    """Take a capture up until it is over, and print what came of it; the exit code."""
    with FleetProgress(record.id, as_json) as progress:
        drive = Drive(record.way, changed=progress.show)
        fleet = _run(drive.follow(record.id, stop=stop), timeout, lambda: _goes_on(record.id))
    outcome = Outcome(record.id, _with_left_out(fleet.hosts, record), drive.clocks)
    _print(outcome, as_json, record.collected)
    return outcome.exit_code


def show(record: Record, as_json: bool) -> None:
    """Print how a capture stands on all hosts."""
    from profclient.fleet.collect import captures_of  # here: `start` needs nothing of it

    async def get(host: Host) -> HostState:
        capture, *others = await captures_of(host, record.id)
        for other in others:
            capture.targets.extend(other.targets)
        return HostState(Stand.RECORDING if live(capture) else Stand.OVER, capture=capture)

    answers = _run(each(record.way, get))
    hosts = {
        name: HostState(_without(answer), str(answer), answer.kind) if isinstance(answer, ClientError) else answer
        for name, answer in answers.items()
    }
    if all(isinstance(answer, NotFoundError) for answer in answers.values()):
        raise NotFoundError(f"no host has a capture {record.id} of yours.")
    _print(Outcome(record.id, _with_left_out(hosts, record)), as_json, record.collected)


def _without(error: ClientError) -> Stand:
    """The stand of a host that had begun, and has no answer: one that is out of reach may have all that it recorded."""
    return Stand.LOST if isinstance(error, UnreachableError) else Stand.OUT


def where(way: Way, request: pb.WhereRequest) -> dict[str, pb.WhereResponse | ClientError]:
    """The stacks of all hosts' processes. A host without any of the ranks that were asked for is left out."""

    async def look(host: Host) -> pb.WhereResponse:
        answer: pb.WhereResponse = await host.call("Where", request)
        return answer

    answers: dict[str, pb.WhereResponse | ClientError] = _run(each(way, look))
    if request.selector.ranks and any(not isinstance(answer, NotFoundError) for answer in answers.values()):
        return {host: answer for host, answer in answers.items() if not isinstance(answer, NotFoundError)}
    return answers


def _about_to_begin(drive: Drive, order: FleetOrder, progress: FleetProgress, fleet: Fleet) -> None:
    """Whatever becomes of us from here on, another command can take it up."""
    taking = tuple(host for host, state in fleet.hosts.items() if state.stand is Stand.BEGINNING)
    out = {host: state for host, state in fleet.hosts.items() if state.stand is Stand.OUT}
    left_out = {host: state.why for host, state in out.items()}
    busy = tuple(host for host, state in out.items() if state.kind == BusyError.kind)
    if taking:
        try:
            records.write(Record(order.id, drive.way.to(taking), left_out, busy=busy))
        except OSError as error:
            say(f"warning: {records.folder()} cannot be written ({error.strerror}): `profctl wait` will need --hosts")
    progress.prepared(fleet, drive.boundary_ns, drive.meeting)


def _is_refused(state: HostState) -> bool:
    """Whether a host that could record was told something that it refuses: it is another one's second name, for one."""
    return state.stand is Stand.OUT and state.kind == UsageError.kind and state.capture is None


def _leave_out(fleet_id: str, refused: dict[str, str]) -> None:
    """Clients that take the capture up leave these hosts out: a host with two names would give everything twice."""
    with suppress(OSError, ClientError):  # without a record nobody does
        record = records.find(fleet_id)
        rest = tuple(host for host in record.way.hosts if host not in refused)
        if rest and len(rest) < len(record.way.hosts):
            records.write(replace(record, way=record.way.to(rest), left_out={**record.left_out, **refused}))


def _with_left_out(hosts: dict[str, HostState], record: Record) -> dict[str, HostState]:
    kinds = dict.fromkeys(record.busy, BusyError.kind)
    left_out = {host: HostState(Stand.OUT, why, kinds.get(host, "failure")) for host, why in record.left_out.items()}
    return {**hosts, **left_out}


def _print(outcome: Outcome, as_json: bool, collected: str = "") -> None:
    if as_json:
        emit_json(outcome.to_json())
    else:
        print_outcome(outcome, collected if collected and _is_there(collected, outcome.id) else "")


def _is_there(folder: str, fleet_id: str) -> bool:
    return Path(folder, f"capture={fleet_id}").is_dir()


def _goes_on(fleet_id: str, has_begun: bool = True) -> str:
    if not has_begun:
        return "the time was over before all hosts had answered, and nothing has begun on any."
    return f"capture {fleet_id} goes on. `profctl wait {fleet_id}` waits for its end."


def _run(work: Coroutine[Any, Any, Any], timeout: float | None = None, too_long: Callable[[], str] = lambda: "") -> Any:
    async def bounded() -> Any:
        try:
            async with asyncio.timeout(timeout):
                return await work
        except TimeoutError:
            raise TimeoutExpired(too_long()) from None

    return asyncio.run(bounded())


def _code(failed: int, all_of_them: int) -> int:
    return 0 if not failed else 1 if failed == all_of_them else 6
