"""Findings for people: those that an answer begins with, and all of them with their evidence."""

from __future__ import annotations

import shlex
from typing import Any, Final

import click

from profclient.cli.captured_view import ranges, say_of_traces
from profclient.cli.output import counted, printable, wrapped
from profclient.cli.units import duration
from profclient.errors import ClientError
from profclient.traces import Traces

LEADING: Final = 3  # that an answer begins with
AT_ONCE_EVENTS: Final = 250_000  # of a trace: the findings of a larger one follow its summary
_HANG: Final = 4
_RANKS_SHOWN: Final = 16


def leading_lines(traces: Traces, trace: str) -> list[tuple[str, str]]:
    """(name, text) of the first findings, for a summary; none where nothing was found."""
    try:
        answer = traces.ask("explain", trace).value()
    except ClientError as error:
        # The summary is what was asked for: it is printed all the same.
        return [("findings", f"not available: {error}")]
    found = answer["findings"]
    lines = [("finding", f"{printable(one['sentence'])} {_at_most(one)}") for one in found[:LEADING]]
    more = f"{len(found) - LEADING} more, and " if len(found) > LEADING else ""
    return [*lines, ("", f"({more}the evidence: profctl explain {trace})")] if lines else []


def print_findings(answer: dict[str, Any], trace: str) -> None:
    """The whole answer of `explain`."""
    if "capture" in answer:
        say_of_traces(answer)
    if answer["findings"]:
        click.echo(f"{counted(len(answer['findings']), 'finding')} in {_measured(answer['measured'])}")
    for one in answer["findings"]:
        click.echo()
        _print(one, one.get("trace", trace))
    if len(answer["findings"]) > 1:
        click.echo("\nBounds overlap: they do not add up.")
    if answer["message"]:
        click.echo(wrapped(printable(answer["message"]), hang=0))


def _measured(part: dict[str, Any]) -> str:
    lasted = duration(part["duration_ns"])
    if not part["steps"]:
        return f"the window ({lasted})"
    steps = f"step {part['first_step']}" if part["steps"] == 1 else f"steps {part['first_step']}..{part['last_step']}"
    first = "; the first step, which warms up, left out" if part["steps_left_out"] == 1 else ""
    return f"{steps} ({lasted}{first})"


def _print(one: dict[str, Any], trace: str) -> None:
    evidence, of_trace = one["evidence"], f" {shlex.quote(trace)}" if trace else ""
    click.echo(click.style(f"{one['rank']}  {one['id']}", bold=True) + f"  {_at_most(one)}")
    _indented(printable(one["sentence"]), hang=0)
    if one.get("traces", 1) > 1:
        _indented(f"In {_whose(one)}; the numbers are of trace {printable(one['trace'])}.", hang=0)
    if one["symptom_of"]:
        _indented(f"A symptom: {', '.join(one['symptom_of'])} may be why.")
    if evidence["steps"]:
        _indented(f"steps    {', '.join(map(str, evidence['steps']))}")
    if evidence["rows"]:
        _indented(f"rows     {', '.join(map(str, evidence['rows']))}  (profctl tree{of_trace} --row N)")
    if one["assumptions"]:
        _indented(f"assumes  {printable('; '.join(one['assumptions']))}")
    _indented(f"to know  {printable(one['confirm'].replace(' TRACE', of_trace))}")


def _whose(one: dict[str, Any]) -> str:
    runs = ranges([[rank, rank] for rank in one["of_ranks"][:_RANKS_SHOWN]])
    more = len(one["of_ranks"]) - _RANKS_SHOWN
    of = f", ranks {runs}{f' and {more} more' if more > 0 else ''}" if runs else ""
    return f"{counted(one['traces'], 'trace')}{of}"


def _indented(text: str, hang: int = 9) -> None:
    click.echo(wrapped(f"{'':{_HANG}}{text}", hang=_HANG + hang))


def _at_most(one: dict[str, Any]) -> str:
    share = one["bound_share"]
    return "(memory, not time)" if share is None else f"(at most {100 * share:.0f} % less time)"
