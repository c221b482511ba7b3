"""A capture of many hosts for people: counts by state, and exceptions by name."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import click
from profproto.v1 import capture_pb2 as pb
from rich.text import Text

from profclient.as_json import state_name
from profclient.cli import capture_view
from profclient.cli.follow import Progress
from profclient.cli.output import counted, one_line, say, wrapped
from profclient.cli.units import duration
from profclient.fleet.clocks import apart_ns, reference_ns
from profclient.fleet.machine import Fleet, Stand
from profclient.fleet.messages import sentence
from profclient.fleet.outcome import Outcome
from profclient.fleet.steps import Common, Meeting, StepTime

SHOWN_SECONDS = 0.1
NAMED_MAX = 10  # hosts or processes, of each kind
_SAID = {Stand.OUT: "takes no part", Stand.LOST: "is lost", Stand.NOTHING: "has none"}


class FleetProgress(Progress):
    """The hosts of a capture; where lines follow each other, a line when the slowest host has come on."""

    def __init__(self, fleet_id: str, quiet: bool) -> None:
        super().__init__(quiet)
        self._id = fleet_id
        self._said: Stand | None = None
        self._again = 0.0

    def show(self, fleet: Fleet) -> None:
        """Show where the hosts stand, after each change."""
        if self.quiet:
            return
        if self.live is not None:
            if time.monotonic() >= self._again:  # nobody could read a line for each event of many processes
                self._again = time.monotonic() + SHOWN_SECONDS
                self.live.update(Text(self._counted(fleet)))
        elif not fleet.over and (slowest := min(fleet.counts, key=list(Stand).index)) != self._said:
            self._said = slowest
            self.line(self._counted(fleet))

    def _counted(self, fleet: Fleet) -> str:
        return "  ".join([f"capture {self._id}", *_counts(fleet)])

    def prepared(self, fleet: Fleet, start_ns: int | None, meeting: Meeting) -> None:
        """Print the hosts that take part, and those that do not, before anything begins."""
        if self.quiet:
            return
        taking = [state for state in fleet.hosts.values() if state.stand is Stand.BEGINNING]
        able = sum(state.able for state in taking)
        processes = "1 process" if able == 1 else f"{able:,} processes"
        if taking:
            said = f"{len(taking):,} of {counted(len(fleet.hosts), 'host')}, {processes}; "
            say(f"{said}{_begin(start_ns, meeting)}")
            if meeting.why:
                how = "by clock, and not at one step" if meeting.step is None else f"step {meeting.step} may not come"
                say(wrapped(f"  {how}: {one_line(sentence(meeting.why))}", hang=4))
        without = [f"{host}: {state.why}" for host, state in fleet.hosts.items() if state.stand is Stand.OUT]
        without += [f"{host}: {line}" for host, state in fleet.hosts.items() for line in state.unable if not state.why]
        for line in _some(without, "more"):
            say(wrapped(f"  not {one_line(line)}", hang=6))


def print_outcome(outcome: Outcome, collected: str = "", *, following: bool = True) -> None:
    """The answer: how many ended how, exceptions by name, clocks, and what helps next.

    `collected`: the folder that has its traces.
    """
    click.echo(f"capture {outcome.id}: {outcome.state}")
    ended = Counter(state_name(target.state) for target in outcome.known)
    hosts = sum(state.capture is not None for state in outcome.hosts.values())
    processes = "  ".join(f"{number:,} {state}" for state, number in ended.most_common()) or "none"
    click.echo(f"  hosts      {hosts:,} of {len(outcome.hosts):,} recorded")
    click.echo(f"  processes  {processes}")
    if outcome.sampled_of:
        ranks = ", ".join(map(str, outcome.sample[:NAMED_MAX])) + (", …" if len(outcome.sample) > NAMED_MAX else "")
        sampled = f"{len(outcome.sample):,} of {outcome.sampled_of:,} ranks, spread over the hosts: {ranks}"
        click.echo(wrapped(f"  sample     {sampled}; --all records all", hang=13))
        if outcome.step_times:
            click.echo(wrapped(f"  pace       {one_line(_pace(outcome.step_times))}", hang=13))
    for line in _some(list(_exceptions(outcome)), "more; --json has all"):
        click.echo(wrapped(f"  missing    {one_line(line)}", hang=13))
    if outcome.busy and not outcome.live:
        click.echo(wrapped(f"  busy       {_named(outcome.busy)}: the same command may record more later", hang=13))
    if (steps := outcome.steps) is not None:
        click.echo(wrapped(f"  steps      {one_line(sentence(_common(steps)))}", hang=13))
    for line in _some(list(_clock_lines(outcome)), "more; --json has all"):
        click.echo(wrapped(f"  clock      {one_line(line)}", hang=13))
    for line in _following(outcome, collected) if following else ():
        click.echo(f"\nnext: {line}")


def _pace(times: Sequence[StepTime]) -> str:
    """All ranks' steps before any was recorded: recorded ones take longer, and would look guilty."""
    ordered = sorted(times, key=lambda one: one.step_ns)
    middle, last = ordered[len(ordered) // 2], ordered[-1]
    which = "recorded" if last.recorded else "not recorded"
    return (
        f"before, steps of {len(ordered):,} ranks took {duration(middle.step_ns)} (median), at most "
        f"{duration(last.step_ns)}: rank {last.rank} of {last.host}, which was {which}"
    )


def _following(outcome: Outcome, collected: str) -> Iterator[str]:
    """What helps after it: questions where the traces are here, else to bring them."""
    if any(state.stand is Stand.LOST for state in outcome.hosts.values()):
        yield f"profctl wait {outcome.id}  (a lost host keeps what it recorded; --hosts and --via: another way there)"
    traced = [target for _, target in outcome.targets if target.trace]
    if collected and traced:
        ranks = len({target.rank for target in traced if target.HasField("rank")})
        question = f"ranks {outcome.id}" if ranks > 1 else f"top {outcome.id} --by host"
        yield f"profctl {question}  (its traces are in {collected})"
    elif traced:
        yield f"profctl collect {outcome.id} --to DIR"


def _begin(start_ns: int | None, meeting: Meeting) -> str:
    if meeting.step is not None:
        return f"all begin at step {meeting.step}"
    begins = time.strftime("%H:%M:%S", time.localtime(start_ns / 1e9)) if start_ns else ""
    return f"the windows begin together at {begins}"


def _common(steps: Common) -> str:
    all_of_them, these = ("all others", "the others") if steps.unpaired else ("all of them", "all")
    by_clock = f"in the time that {these} recorded each had at least {counted(steps.count, 'whole step')}"
    numbers = f"{steps.first} to {(steps.first or 0) + steps.count - 1} are whole on {all_of_them}"
    said = by_clock if steps.first is None else numbers if steps.count else f"none is whole on {all_of_them}"
    if steps.unpaired:
        said = f"{_named(steps.unpaired)} {'has' if len(steps.unpaired) == 1 else 'have'} none; {said}"
    if steps.count < steps.asked:
        said = f"{said}; {steps.asked} were asked for"
    return f"missed: {said}" if steps.missed else said


def _counts(fleet: Fleet) -> list[str]:
    """Hosts by where they stand, then processes by state."""
    hosts = [f"{number} {stand.value}" for stand, number in sorted(fleet.counts.items())]
    states = Counter(
        state_name(target.state)
        for state in fleet.hosts.values()
        if state.capture is not None
        for target in state.capture.targets
    )
    processes = [f"{number} {state}" for state, number in sorted(states.items())]
    return [f"hosts: {', '.join(hosts)}", *([f"processes: {', '.join(processes)}"] if processes else [])]


def _exceptions(outcome: Outcome) -> Iterator[str]:
    for host, why in outcome.missing.items():
        yield f"{host} {_SAID[outcome.hosts[host].stand]}: {why}"
    if outcome.missing_ranks:
        yield f"ranks that no host has: {_named(outcome.missing_ranks)}"
    for host, target in outcome.targets:
        if target.state > pb.STATE_STORED:
            yield f"{host} {capture_view.target_line(target)}"


def _clock_lines(outcome: Outcome) -> Iterator[str]:
    reference = reference_ns(outcome.clocks)
    for host, clock in outcome.clocks.items():
        if apart := apart_ns(clock, reference):
            ahead = "ahead of" if apart > 0 else "behind"
            yield f"{host} is {duration(abs(apart))} {ahead} most others; its window was moved by that"
    undisciplined = [host for host, clock in outcome.clocks.items() if clock.synchronised is False]
    if undisciplined:
        yield f"nothing keeps the time of {_named(undisciplined)}"


def _named(some: Sequence[object]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(some) - NAMED_MAX} more" if len(some) > NAMED_MAX else ""
    return ", ".join(map(str, some[:NAMED_MAX])) + more


def _some(lines: list[str], more: str) -> list[str]:
    shown = [sentence(line) for line in lines[:NAMED_MAX]]
    return [*shown, f"… and {len(lines) - NAMED_MAX} {more}"] if len(lines) > NAMED_MAX else shown
