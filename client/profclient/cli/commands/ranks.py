"""`profctl ranks`: Say which ranks of a job the others wait for, and where the steps of each went."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from profclient.cli.backend import following, traces
from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.heat_view import print_heat
from profclient.cli.imported import asked_of
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, printable, say, table, wrapped
from profclient.cli.units import duration


@click.command()
@click.argument("capture", nargs=-1, metavar="[CAPTURE | FILES…]")
@json_option
def ranks(capture: tuple[str, ...], as_json: bool) -> None:
    """Say which ranks of a job the others wait for, and where the steps of each rank went.

    A row is a rank, its times a step on average: COMPUTE, EXPOSED (collectives with nothing computed beside them),
    COPIES, and IDLE. WAITING is the part of EXPOSED until the last rank came. LOADING is the part of IDLE in which the
    rank waited for a DataLoader, and LATE the part in which the host had not launched the next work. A rank that is
    late by more than chance explains is named, with what it does more than the others; "none" and "not enough data" are
    answers, too. The map shows how late each rank was in each step.

    FILES are traces of all ranks of a job, such as Kineto writes: they are imported as one capture first. A capture of
    many hosts is asked once `profctl collect` has brought it.

    \b
      profctl ranks                               # the latest capture
      profctl ranks c0123456789ab
      profctl ranks rank*.json.gz
    """
    with traces() as source:
        asked = asked_of(source, capture)
        answer = source.ask("ranks", asked).value()
    if as_json:
        emit_json(answer)
        return
    say_of_traces(answer)
    _print_rows(answer["ranks"])
    click.echo()
    for one in answer["stragglers"]:
        click.echo(wrapped(printable(one["sentence"]), hang=2))
        click.echo(f"  by chance: {_chance(one['chance'])}; compared with {counted(one['compared_with'], 'other')}")
    if answer["message"]:
        click.echo(wrapped(printable(answer["message"]), hang=2))
    click.echo(wrapped(printable(answer["clocks"]["message"]), hang=2))
    for remark in answer["remarks"]:
        click.echo(wrapped(printable(remark), hang=2))
    print_heat(answer["heat"])
    if answer["stragglers"]:
        say(f"next: {following(_next(answer['stragglers'][0], answer['heat']))}")


_NUMBERS = ("STEPS", "STEP", "COMPUTE", "EXPOSED", "WAITING", "COPIES", "IDLE", "LOADING", "LATE")
_KEYS = ("step", "compute", "exposed", "waiting", "copying", "idle", "idle_loading", "idle_late_launch")


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    cells = [
        [place(row), row["host"] or "-", f"{row['steps']:,}", *(duration(row[f"{key}_ns"]) for key in _KEYS)]
        for row in rows
    ]
    spare = ["HOST", "LATE", "LOADING"]
    table(["RANK", "HOST", *_NUMBERS], cells, right=_NUMBERS, wide=["HOST"], spare=spare, nothing=("-", "0 ns"))


def _chance(chance: float) -> str:
    return "less than 1 in a million" if chance < 1e-6 else f"{chance:.2g}"


def _next(one: dict[str, Any], heat: dict[str, Any]) -> str:
    """At a step that it is late in, as its own trace calls it; older daemons do not say how that is."""
    ahead = next((row.get("counts_ahead") for row in heat["rows"] if row["trace"] == one["trace"]), None) or 0
    step = f" --step {one['steps'][0] + ahead}" if one["steps"] else ""
    return f"profctl top {shlex.quote(one['trace'])}{step}"
