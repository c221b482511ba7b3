"""`profctl steps`: List the training steps of a trace."""

from __future__ import annotations

import shlex
from typing import Any

import click

from profclient.cli.backend import following, traces
from profclient.cli.captured_view import place, say_of_traces
from profclient.cli.options import json_option
from profclient.cli.output import counted, emit_json, say, table, wrapped
from profclient.cli.units import duration
from profclient.errors import UsageError
from profclient.traces import is_capture

SHOWN = 100  # steps, unless asked for more: a run may have 100,000
NAME_CHARS = 20  # of a step's name and its top operator: less does not tell them apart
NOTHING = ("", "-", "0%")  # cells that say nothing: a column of these is left out


_SORTS = {
    "number": lambda row: row["start_ns"],
    "duration": lambda row: -row["duration_ns"],
    "busy": lambda row: -(row["device_busy_ns"] or 0),
    "idle": lambda row: -(row["device_idle_ns"] or 0),
    "calls": lambda row: -row["launches"],
    "delay": lambda row: -(row["launch_delay_p50_ns"] or 0),
    "host": lambda row: -(row["host_share"] or 0),
}


_SORTS_OF_CAPTURE = {"number": lambda row: row["number"], "duration": lambda row: -row["duration_max_ns"]}


@click.command()
@click.argument("trace", default="")
@click.option(
    "--sort",
    type=click.Choice(tuple(_SORTS)),
    default="number",
    show_default=True,
    help="Column to sort by; all but the number from the largest on.",
)
@click.option("--limit", type=click.IntRange(0), help=f"Number of steps; 0 = all.  [default: {SHOWN}, with --json all]")
@json_option
def steps(trace: str, sort: str, limit: int | None, as_json: bool) -> None:
    """List the training steps of a trace, and mark those that took much longer than the others.

    STEP is the number that --step takes, of `top`, `tree` and `export`. BUSY and IDLE are times of the devices.
    CALLS counts the calls that start work on a device; DELAY is the median time until that work
    began. HOST is the share of the step in operators and runtime calls, waiting included. TOP OP, in
    traces of JAX and TensorFlow, is the operator that took longest on the devices.

    SLOW marks outliers: steps longer than the median by more than 5 median deviations and by more than 5 %. It says
    how many times the median they took. Columns that this trace has nothing for are left out.

    TRACE may be a capture: a row is then a step of all ranks, with the shortest, the median and the longest time, and
    SLOWEST is the rank that took longest. --json has the steps of each. Steps of profclient.step() have the number that
    the program gave them, as in the answer of `profctl start`. Others are counted from the beginning of each rank's
    recording, and one number may be neighbouring steps of two ranks.
    """
    if limit is None:
        limit = 0 if as_json else SHOWN
    if is_capture(trace):
        _steps_of_capture(trace, sort, limit, as_json)
        return
    with traces() as source:
        answer = source.ask("steps", trace).value()
    rows = sorted(answer["steps"], key=_SORTS[sort])[: limit or None]
    if as_json:
        emit_json({**answer, "steps": rows})
    elif rows:
        first = min(row["start_ns"] for row in answer["steps"])
        _print(rows, first, (answer.get("outliers") or {}).get("median_ns"))
        _say_more(len(answer["steps"]) - len(rows))
        _remarks(answer, trace)
    else:
        say(wrapped(f"Steps: {answer['message']}", hang=2))


def _steps_of_capture(capture: str, sort: str, limit: int, as_json: bool) -> None:
    if sort not in _SORTS_OF_CAPTURE:
        raise UsageError(f"the steps of a capture are sorted by {' or '.join(_SORTS_OF_CAPTURE)}, not by {sort}.")
    with traces() as source:
        answer = source.ask("steps", capture).value()
    rows = sorted(answer["by_number"], key=_SORTS_OF_CAPTURE[sort])[: limit or None]
    if as_json:
        emit_json({**answer, "by_number": rows})
    elif rows:
        say_of_traces(answer)
        numbers = ["STEP", "TRACES", "MIN", "MEDIAN", "MAX"]
        table([*numbers, "SLOWEST"], map(_cells_of_capture, rows), right=numbers, wide=["SLOWEST"])
        _say_more(len(answer["by_number"]) - len(rows))
        if numbering := _numbering(answer):
            say(wrapped(numbering, hang=2))
        slowest = max(rows, key=lambda row: row["duration_max_ns"])["slowest"]["trace"]
        say(f"next: {following(f'profctl steps {shlex.quote(slowest)}')}")
    else:
        say(wrapped(f"Steps: {answer['message']}", hang=2))


def _numbering(answer: dict[str, Any]) -> str:
    """Whose numbers these are, where ranks may differ, and which were asked for. Older daemons do not say."""
    if answer.get("numbered_by") == "window":
        return (
            "STEP counts from where each rank began to record, since an optimizer numbers no steps: another rank's of "
            "the same number may be the one before or behind it. profctl ranks pairs them by collectives."
        )
    if asked := answer.get("asked"):
        last = asked["first"] + asked["n"] - 1
        return f"{asked['first']} to {last} were asked for; the others are around them, so that these are whole."
    return ""


def _say_more(count: int) -> None:
    if count:
        say(f"{count:,} more: --limit 0 prints all, --sort duration the slowest first")


def _cells_of_capture(row: dict[str, Any]) -> list[str]:
    times = [duration(row[f"duration_{which}_ns"]) for which in ("min", "p50", "max")]
    host = row["slowest"]["host"]
    return [str(row["number"]), str(row["traces"]), *times, place(row["slowest"]) + (f" on {host}" if host else "")]


def _print(rows: list[dict[str, Any]], first: int = 0, median_ns: int | None = None) -> None:
    with_ops = any(row.get("ops") for row in rows)
    numbers = ["AT", "DURATION", "SLOW", "BUSY", "IDLE", "CALLS", "DELAY", "HOST"]
    columns = ["STEP", "NAME", *numbers, *(["TOP OP"] if with_ops else [])]
    alike = len({row["name"].removesuffix(f"#{row.get('number')}") for row in rows}) == 1
    cells = [_cells(row, first, median_ns) + ([_top(row)] if with_ops else []) for row in rows]
    spare = ["NAME"] if alike else []  # the number says as much
    right = ["STEP", *numbers]
    table(columns, cells, right=right, wide=["NAME", "TOP OP"], spare=spare, least=NAME_CHARS, nothing=NOTHING)


def _remarks(answer: dict[str, Any], trace: str) -> None:
    """The number of slow steps, and the command that shows why; without any, the command for all steps."""
    asked = f" {shlex.quote(trace)}" if trace else ""
    slow = [row for row in answer["steps"] if row.get("outlier")]
    if not slow:
        say(f"next: {following(f'profctl top{asked}')}")
        return
    told = answer["outliers"]
    say(f"{told['n']} of {counted(answer['n'], 'step')} took longer than {duration(told['above_ns'])}.")
    slowest = max(slow, key=lambda row: row["duration_ns"])
    command = f"profctl top{asked} --step {slowest['number']}"
    say(f"next: {following(command)}")


def _top(row: dict[str, Any]) -> str:
    ops = row.get("ops")
    return f"{ops[0]['name']} ({duration(ops[0]['duration_ns'])})" if ops else "-"


def _cells(row: dict[str, Any], first_ns: int, median_ns: int | None) -> list[str]:
    share, launches = row["host_share"], row["launches"]
    slow = row.get("outlier") and median_ns
    return [
        str(row.get("number", "-")),  # older daemons do not say
        row["name"],
        duration(row["start_ns"] - first_ns),
        duration(row["duration_ns"]),
        f"{row['duration_ns'] / median_ns:.1f}x" if slow else "",
        duration(row["device_busy_ns"]),
        duration(row["device_idle_ns"]),
        f"{launches:,}" if launches else "-",
        duration(row.get("launch_delay_p50_ns")),
        "-" if share is None else f"{share:.0%}",
    ]
