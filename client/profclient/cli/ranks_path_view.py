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
    rows = [("work of", place(row), row, _without(row, whole)) for row in answer["ranks"]]
    rows += [("collective", _collective(row), row, "-") for row in answer["collectives"]]
    cells = (
        [
            share(row["path_ns"], whole),
            duration(row["path_ns"]),
            f"{row['times']:,}",
            without,
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


def _without(row: dict[str, Any], whole: int) -> str:
    """By how much shorter the steps were; two numbers where one was not told."""
    if row["without_ns"] is not None:
        return shorter(whole - row["without_ns"], whole)
    if row["without_least_ns"] is None:
        return "-"
    if row["without_most_ns"] is None:
        return f"? to {shorter(whole - row['without_least_ns'], whole)}"
    most, least = (shorter(whole - row[f"without_{which}_ns"], whole) for which in ("most", "least"))
    return f"{most.removesuffix(' %')} to {least}"


def _collective(row: dict[str, Any]) -> str:
    return printable(f"{row['op'] or 'collective'}{' of ' + row['group'] if row['group'] else ''}")
