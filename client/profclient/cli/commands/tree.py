"""`profctl tree`: Print the call tree of a trace."""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.commands.export import copy
from profclient.cli.merged_view import print_merged, say_of_unrecorded
from profclient.cli.options import json_option, within_options, within_query, within_words
from profclient.cli.output import emit_json, printable, say
from profclient.cli.units import duration
from profclient.errors import UsageError
from profclient.traces import is_capture

PERSON_LINES = 2000  # nobody reads more; --json has all
PATHS = 40  # of the merged tree
TERMINAL_LINES = 200  # nor so many where they scroll away


@click.command()
@click.argument("trace", default="")
@click.option("--depth", type=click.IntRange(0), default=0, help="Number of levels; 0 = all.")
@click.option("--row", type=click.IntRange(0), default=None, help="Only the subtree of this row.")
@click.option("--merged", is_flag=True, help="Put all calls of one path together, the hottest path first.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=None,
    help="With --merged: number of paths, those with most time; 0 = all. [40; all with --json]",
)
@within_options
@json_option
def tree(
    trace: str, depth: int, row: int | None, merged: bool, limit: int | None, as_json: bool, **within: Any
) -> None:
    """Print the call tree of a trace: each call in start order, or with --merged each path once.

    Each thread has a tree of its own. Device work stands below the call that launched it.
    A terminal shows the first 200 calls, a pipe or file 2,000; --json prints all.

    --merged answers where the time went, and who called what took it: TOTAL is the time of a path with all below it,
    SELF without, % the share of TOTAL in the window; threads are added up. A function that calls itself is one path.

    Threads that profd itself has started in the process are left out; --thread profd-agent shows them.
    """
    if merged and (depth or row is not None):
        raise UsageError("--depth and --row are for the tree of single calls; --merged takes --limit.")
    if not merged and limit is not None:
        raise UsageError("--limit is for --merged; --depth and --row narrow the tree of single calls.")
    if merged:
        with traces() as source:
            paths_wanted = limit if limit is not None else (0 if as_json else PATHS)
            answer = source.ask("merged_tree", trace, limit=paths_wanted, **within_query(within)).value()
        if as_json:
            emit_json(answer)
        else:
            print_merged(answer)
            if (within["step"] or within["window"]) and not within["thread"]:
                say_of_unrecorded(answer)
        return
    _print_calls(trace, depth, row, within, as_json)


def _print_calls(trace: str, depth: int, row: int | None, within: dict[str, Any], as_json: bool) -> None:
    limit = TERMINAL_LINES if sys.stdout.isatty() else PERSON_LINES
    with traces() as source:
        whole = not as_json and not depth and row is None and not within_words(within)
        total = source.get(trace)["events"] if whole and not is_capture(trace) else None
        answer = source.ask("tree", trace, max_depth=depth, from_row=row, **within_query(within))
        if as_json:
            copy(answer, sys.stdout.buffer)
        else:
            events = [json.loads(line) for line in itertools.islice(answer.lines(), limit + 1)]
            print_tree(events[:limit])
            if len(events) > limit:
                others = "--merged shows where the time went, --depth and --row narrow the tree, --json prints all"
                say(f"… {_left(total, limit)}; {others}.")


def print_tree(events: Sequence[dict[str, Any]]) -> None:
    """Calls below their callers, a heading for each thread; what has no caller here stands on its own."""
    rows = {event["row"] for event in events}
    below: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    roots: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event["parent"] in rows:
            below[event["parent"]].append(event)
        else:
            roots[_place(event)].append(event)
    for place, calls in roots.items():
        click.echo(place)
        waiting = calls[::-1]
        while waiting:
            event = waiting.pop()
            click.echo(_line(event))
            waiting += below[event["row"]][::-1]


def _place(event: dict[str, Any]) -> str:
    if event["device_type"] != "CPU" and event["device"] is not None:
        return printable(f"{event['device_type']} {event['device']}, stream {event['stream']}")
    return printable(f"process {event['process']}, thread {event['thread']}")


def _line(event: dict[str, Any]) -> str:
    took = None if event["end_ns"] is None else event["end_ns"] - event["start_ns"]
    name = printable(event["name"])
    return f"{event['row']:>8}  {duration(took):>10}  {'  ' * event['depth']}{name}  [{event['kind']}]"


def _left(total: int | None, shown: int) -> str:
    return f"cut at {shown:,} calls" if total is None else f"{total - shown:,} more"
