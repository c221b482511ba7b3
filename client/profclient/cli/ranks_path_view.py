"""The critical path over the ranks of a capture, as `profctl critical` prints it."""

from __future__ import annotations

from typing import Any, Final

import click

from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.output import counted, printable, say, table, wrapped
from profclient.cli.units import duration, share, shorter

_RIGHT: Final = ["ON PATH", "TIME", "TIMES", "WITHOUT IT"]


def print_ranks_on_path(answer: dict[str, Any]) -> None:
    """Ranks by their work on the path, collectives, and what a late rank costs."""
    say_of_traces(answer)
    whole, steps = answer["path"]["duration_ns"], answer["steps"]
    numbers = f"step {steps['first']}" if steps["n"] == 1 else f"steps {steps['first']}..{steps['last']}"
    met = counted(answer["path"]["meetings"], "collective")
    click.echo(f"What the end of {numbers} waited for over all ranks ({duration(whole)}, {met}):\n")
    rows = [("work of", place(row), row, row["without_ns"]) for row in answer["ranks"]]
    rows += [("collective", _collective(row), row, None) for row in answer["collectives"]]
    cells = (
        [
            share(row["path_ns"], whole),
            duration(row["path_ns"]),
            f"{row['times']:,}",
            "-" if without is None else shorter(whole - without, whole),
            where,
            name,
        ]
        for where, name, row, without in rows
    )
    table([*_RIGHT, "WHERE", "NAME"], cells, right=_RIGHT, wide=["NAME"], nothing=("-",))
    if answer["ranks_left_out"]:
        say(f"… {counted(answer['ranks_left_out'], 'rank')} with less left out; --limit shows more, 0 all.")
    click.echo()
    for sentence in answer["sentences"] or ["No rank is slower than the others by more than chance explains."]:
        click.echo(wrapped(printable(sentence), hang=2))
    for remark in answer["remarks"]:
        click.echo(wrapped(printable(remark), hang=2))


def _collective(row: dict[str, Any]) -> str:
    return printable(f"{row['op'] or 'collective'}{' of ' + row['group'] if row['group'] else ''}")
