"""`profctl comm`: Say what the collectives of a job carry, how long they wait, and who comes last."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.imported import asked_of
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, printable, say, table, wrapped
from profclient.cli.units import duration, size

ROWS_SHOWN = 40
NOT_RECORDED = "not recorded: --shapes"


@click.command()
@click.argument("capture", nargs=-1, metavar="[CAPTURE | FILES…]")
@json_option
def comm(capture: tuple[str, ...], as_json: bool) -> None:
    """Say what the collectives of a job carry, how long they wait, and which rank comes last to them.

    A row has the collectives of one sort of a group. TIME is how long a rank was in them, on average over the ranks.
    TRANSFER is the time that the rank that came last took, and WAITING the time until that rank came. BUS is the
    bandwidth of a link as nccl-tests counts it, by TRANSFER. LAST is the rank that came last most often; "proved"
    counts those where clocks can be no reason. FILES are traces of all ranks, as of
    `profctl ranks`; without an argument the latest capture is asked.
    """
    with traces() as source:
        answer = source.ask("comm", asked_of(source, capture)).value()
    if as_json:
        emit_json(answer)
        return
    say_of_traces(answer)
    if answer["collectives"]:
        cells = [_cells(row) for row in answer["collectives"][:ROWS_SHOWN]]
        table(["GROUP", "COLLECTIVE", *_NUMBERS, "LAST"], cells, right=_NUMBERS, wide=["GROUP", "LAST"], nothing=("-",))
    more = max(len(answer["collectives"]) - ROWS_SHOWN, 0) + answer["rows_left_out"]
    if more:
        say(f"… and {counted(more, 'row')} more; --json has the first 1024.")
    for sentence in (answer["message"], answer["clocks"]["message"], *answer["remarks"]):
        if sentence:
            click.echo(wrapped(printable(sentence), hang=2))


_NUMBERS = ("RANKS", "COUNT", "BYTES", "BUS", "TIME", "TRANSFER", "WAITING")


def _cells(row: dict[str, Any]) -> list[str]:
    speed, times = row["bus_bytes_per_second"], ("total_ns", "transfer_ns", "waiting_ns")
    return [
        row["group"] or "-",
        row["op"] or "unknown",
        "-" if row["ranks"] is None else str(row["ranks"]),
        f"{row['count']:,}",
        NOT_RECORDED if row["bytes"] is None else size(row["bytes"]),
        "-" if speed is None else f"{size(int(speed))}/s",
        *(duration(row[key]) for key in times),
        _last(row),
    ]


def _last(row: dict[str, Any]) -> str:
    if not row["last"]:
        return "-"
    most = row["last"][0]
    proved = f" ({most['proved']:,} proved)" if most["proved"] else ""
    return f"{place(most)}: {most['times']:,} of {row['count']:,}{proved}"
