"""`profctl top`: Print where the time went, by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import click

from profclient.cli.account_view import account_lines
from profclient.cli.backend import following, traces
from profclient.cli.captured_view import say_of_traces
from profclient.cli.options import json_option, within_options, within_query, within_words
from profclient.cli.output import emit_json, say, stack_text, table, wrapped
from profclient.cli.units import duration, flops, size
from profclient.errors import ClientError, UsageError
from profclient.traces import Traces, is_capture

SORT_KEYS = (
    "self_cpu_time_total",
    "cpu_time_total",
    "self_device_time_total",
    "device_time_total",
    "backward_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "flops",
    "count",
    "name",
)


@click.command()
@click.argument("trace", default="")
@click.option("--limit", type=click.IntRange(0), default=None, help="Number of rows; 0 = all. [20; all with --json]")
@click.option(
    "--sort-by", type=click.Choice(SORT_KEYS), default=SORT_KEYS[0], show_default=True, help="Column to sort by."
)
@click.option("--group-by-input-shape", is_flag=True, help="One row for each combination of input shapes.")
@click.option(
    "--group-by-stack-n",
    type=click.IntRange(0),
    default=0,
    help="One row for each stack of this many innermost frames.",
)
@click.option("--group-by", type=click.Choice(("module",)), default=None, help="One row for each name and module.")
@click.option(
    "--by",
    type=click.Choice(("rank", "host", "trace")),
    help="Of a capture: one row for each name and rank, or host, or trace.",
)
@click.option("--with-backward", is_flag=True, help="Add the time of the backward ops of each op.")
@click.option("--raw", is_flag=True, help="Count every event as recorded, not by torch.profiler's rules.")
@within_options
@json_option
def top(
    trace: str,
    limit: int | None,
    sort_by: str,
    group_by_input_shape: bool,
    group_by_stack_n: int,
    group_by: str | None,
    by: str | None,
    with_backward: bool,
    raw: bool,
    as_json: bool,
    **within: Any,
) -> None:
    """Print where the time went, by name: torch.profiler's key averages.

    TRACE may be a capture: the rows of its traces are added up, RANKS says how many ranks have one, and --by rank
    prints those of each. --window is then counted from the first event of all.

    Times are wall times: a function that waits takes as long as one that computes. ~ON CPU, ~GIL, ~LOCK, ~RUN QUEUE
    (ready, waiting for a CPU) and ~OFF CPU (all else) say what SELF WALL went to: estimates, by looks at the threads
    ten times a second; - where fewer than ten fell into a row. A function that calls itself has its time once in WALL
    TOTAL; an operator has the time of every call, as in torch. --step, --window and --thread look at a part: an event
    counts with its time in that part.

    Threads that profd itself has started in the process are left out, and counted above the table; --raw and
    --thread profd-agent show them.

    WALL AVG is WALL TOTAL divided by CALLS. STACK ends with the innermost frame; --json has whole paths.
    A narrow terminal leaves out the columns that say least.
    """
    if by and not is_capture(trace):
        raise UsageError("--by tells the ranks of a capture apart; name one (`profctl captures`).")
    rows_wanted = limit if limit is not None else (0 if as_json else 20)
    with traces() as source:
        asked = source.ask(
            "top",
            trace,
            limit=rows_wanted,
            sort_by=sort_by,
            group_by_input_shape=group_by_input_shape,
            group_by_stack_n=group_by_stack_n,
            raw=raw,
            group_by=group_by,
            with_backward=with_backward,
            by=by,
            **within_query(within),
        )
        answer = asked.value()
        rows = answer["rows"] if is_capture(trace) else answer
        if rows and is_capture(trace) and not as_json:
            say_of_traces(answer)
        elif rows and not as_json and not within_words(within):
            print_window(source, trace)
    if as_json:
        emit_json(answer)
    elif not rows:
        say("There is no event with a duration.")
    else:
        print_rows(rows, sort_by, _ORIGINS_SHOWN[by])
        of_capture = is_capture(trace)
        command = _next_of_capture(trace, by) if of_capture else next_command(rows, trace, within_words(within))
        if command:
            say(f"next: {following(command)}")


def _next_of_capture(capture: str, by: str | None) -> str:
    return f"profctl steps {shlex.quote(capture)}" if by else f"profctl top {shlex.quote(capture)} --by rank"


def next_command(rows: list[dict[str, Any]], trace: str, within: str = "") -> str:
    """The command that answers the question that these rows raise; empty: none in particular."""
    on_device = sum(row["self_device_time_total_ns"] for row in rows)
    on_cpu = sum(row["self_cpu_time_total_ns"] for row in rows)
    in_functions = sum(row["self_cpu_time_total_ns"] for row in rows if _FUNCTION.search(row["name"]))
    asked = f" {shlex.quote(trace)}" if trace else ""
    if on_device > on_cpu:
        return f"profctl gpu{asked}"
    if 2 * in_functions > on_cpu:
        return f"profctl tree{asked} --merged{within}"
    if not within and any(_STEP.match(row["name"]) for row in rows):
        return f"profctl steps{asked}"
    return f"profctl tree{asked} --merged{within}" if on_cpu else ""


def print_window(source: Traces, trace: str) -> None:
    """The whole that the table is a part of: how the window was spent. Beside the table, which others may read."""
    try:
        account = source.ask("window", trace).value()
    except ClientError:  # a daemon of before this question, or the trace has just gone: the table is there
        return
    for name, text in account_lines(account):
        say(wrapped(f"{name:<7} {text}", hang=8))


# Heading, field and how it is written; columns whose field says nothing anywhere are left out.
_FIGURES: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("SELF DEV", "self_device_time_total_ns", duration),
    ("DEV TOTAL", "device_time_total_ns", duration),
    ("BACKWARD", "backward_time_total_ns", duration),
    ("SELF CPU MEM", "self_cpu_memory_usage", size),
    ("CPU MEM", "cpu_memory_usage", size),
    ("SELF DEV MEM", "self_device_memory_usage", size),
    ("DEV MEM", "device_memory_usage", size),
    ("FLOPS", "flops", flops),
)
# Of SELF WALL, by looks at the threads; "-" where too few fell into a row. Columns of waits only where they are some.
_ESTIMATES: tuple[tuple[str, str], ...] = (
    ("~ON CPU", "self_on_cpu_estimate_ns"),
    ("~GIL", "self_gil_estimate_ns"),
    ("~LOCK", "self_lock_estimate_ns"),
    ("~RUN QUEUE", "self_run_queue_estimate_ns"),
    ("~OFF CPU", "self_off_cpu_estimate_ns"),
)
ESTIMATE_SHOWN = 0.02  # of the estimated time
_TEXTS = {"STACK": "stack", "MODULE": "module", "SHAPES": "input_shapes", "NODE": "node_id"}
_ORIGINS = {"RANK": "rank", "HOST": "host", "TRACE": "trace"}
# Of rows of a capture, by what --by tells apart.
_ORIGINS_SHOWN = {None: (), "rank": ("RANK", "HOST"), "host": ("HOST",), "trace": ("RANK", "HOST", "TRACE")}
# What gives way where the texts have no room, the first one first.
_SPARE = {
    "WALL AVG": "",
    "~OFF CPU": "",
    "~RUN QUEUE": "",
    "CPU MEM": "cpu_memory_usage",
    "DEV MEM": "device_memory_usage",
    "SELF CPU MEM": "self_cpu_memory_usage",
    "SELF DEV MEM": "self_device_memory_usage",
    "FLOPS": "flops",
    "DEV TOTAL": "device_time_total",
    "~LOCK": "",
    "~GIL": "",
    "~ON CPU": "",
}
TEXT_CHARS = 20  # of a name: less does not tell names apart
STACK_CHARS = 40  # a frame and the end of the one around it
_FUNCTION = re.compile(r"\(\d+\): ")  # of Python, traced or sampled: `loop.py(12): step`
_STEP = re.compile(r"ProfilerStep\*|Optimizer\.step#")


def print_rows(rows: list[dict[str, Any]], sort_by: str = SORT_KEYS[0], origins: Sequence[str] = ()) -> None:
    """A table; columns of devices, memory and the backward pass only where there is something in them.

    The column that the rows are sorted by stays, however narrow the terminal is.
    """
    figures = [figure for figure in _FIGURES if any(row.get(figure[1]) for row in rows)]
    fields = {**{heading: _ORIGINS[heading] for heading in origins}, **_TEXTS}
    texts = [heading for heading, field in fields.items() if any(row.get(field) not in (None, "") for row in rows)]
    spare = [heading for heading, key in _SPARE.items() if key != sort_by]
    numbers = {"CALLS": "count", **_counts_of_traces(rows)}
    estimates = _estimates(rows)
    estimated, known = ([heading for heading, *_ in each] for each in (estimates, figures))
    columns = ["SELF WALL", *estimated, "WALL TOTAL", "WALL AVG", *known, *numbers]
    last = ["NAME", *texts]
    cells = (
        [*_cells(row, estimates, figures, list(numbers.values())), *(_text(row, fields[name]) for name in texts)]
        for row in rows
    )
    least = STACK_CHARS if "STACK" in texts else TEXT_CHARS
    table(columns + last, cells, right=columns, wide=last, spare=spare, least=least, ends=["STACK"])


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if field == "stack":
        return stack_text(value or [])
    return "" if value is None else str(value)


def _counts_of_traces(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Columns: the number of ranks with a row, where there are several; of traces, where this number differs."""
    several = any((row.get("ranks") or 0) > 1 for row in rows)
    others = any(row.get("traces") not in (None, 1, row.get("ranks")) for row in rows)
    return {**({"RANKS": "ranks"} if several else {}), **({"TRACES": "traces"} if others else {})}


def _estimates(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Headings and fields. The time on the CPU says nothing where it is all the time, and so do waits that are none."""
    sums = {field: sum(row.get(field) or 0 for row in rows) for _, field in _ESTIMATES}
    shown = [each for each in _ESTIMATES if sums[each[1]] > ESTIMATE_SHOWN * sum(sums.values())]
    return [] if shown == [*_ESTIMATES[:1]] else shown


def _cells(
    row: dict[str, Any],
    estimates: Sequence[tuple[str, str]],
    figures: Sequence[tuple[str, str, Callable[[int], str]]],
    counts: Sequence[str],
) -> list[str]:
    total, count = row["cpu_time_total_ns"], row["count"]
    estimated = (row.get(field) for _, field in estimates)
    cells = [
        duration(row["self_cpu_time_total_ns"]),
        *("-" if ns is None else duration(ns) for ns in estimated),
        *(duration(total), duration(total / max(count, 1))),
    ]
    numbers = [f"{row[field]:,}" for field in counts]
    return [*cells, *(write(row.get(field) or 0) for _, field, write in figures), *numbers, row["name"]]
