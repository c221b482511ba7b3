"""The merged call tree in a terminal: a path goes on straight down, and lines are drawn where it forks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from profclient.cli.account_view import left_out
from profclient.cli.flame.layout import NOBODY, callers
from profclient.cli.output import counted, fitted, printable, say
from profclient.cli.units import duration

MOSTLY = 0.5  # of a part: less in all rows is said
_DRAWN_MAX = 40  # columns of lines before a name: deeper forks are no longer told apart
_PLAIN = ("python_function", "sample", "cpu_op")  # kinds that need no word
_HEADINGS = (("TOTAL", 10), ("SELF", 10), ("%", 6), ("CALLS", 9))
_ON_DEVICE = ("DEV TOTAL", 10)


def print_merged(answer: dict[str, Any]) -> None:
    """The answer of the question `merged_tree`, as docs/json.md has it."""
    nodes = answer["nodes"]
    if not nodes:
        say("There is no call with a duration.")
        return
    on_device = any(node["device_total_ns"] for node in nodes)
    headings = (*_HEADINGS[:2], _ON_DEVICE, *_HEADINGS[2:]) if on_device else _HEADINGS
    click.echo("  ".join(f"{heading:>{width}}" for heading, width in headings) + "  NAME")
    for node, drawn in zip(nodes, drawings([node["depth"] for node in nodes]), strict=True):
        cells = [duration(node["total_ns"]), duration(node["self_ns"])]
        cells += [duration(node["device_total_ns"]) if node["device_total_ns"] else ""] if on_device else []
        cells += ["" if node["share"] is None else f"{node['share']:.1%}", f"{node['count']:,}"]
        head = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, headings, strict=True)) + f"  {drawn}"
        click.echo(head + fitted(_name(node), len(head)))
    if answer["left_out"]:
        say(f"… {counted(answer['left_out'], 'path')} with less time left out; --limit shows more, 0 all.")
    say_of_profd(answer)


def say_of_unrecorded(answer: dict[str, Any]) -> None:
    """That most of a part is in no path: whoever reads its first rows alone takes these for the cause."""
    nodes = answer["nodes"]
    shares = [node["share"] for node in nodes]
    if not nodes or None in shares:
        return
    # Rows that are left out have less time than each of these, and may be roots.
    seen = sum(node["share"] for node in nodes if node["depth"] == 0) + answer["left_out"] * min(shares)
    if seen <= MOSTLY:
        least = "At least " if answer["left_out"] else ""
        say(f"{least}{1 - seen:.0%} of this part is in nothing that was recorded: --stacks records every Python call.")


def say_of_profd(answer: dict[str, Any]) -> None:
    """That threads of profd are left out, where some are. Answers of earlier daemons have them, and do not say so."""
    if answer.get("own_threads"):
        say(f"{left_out(answer['own_threads'])}; --thread profd-agent shows them.")


def _name(node: dict[str, Any]) -> str:
    name = printable(node["name"]) + ("" if node["kind"] in _PLAIN else f"  [{node['kind']}]")
    return name + ("  (recursive)" if node["recursive"] else "")


def drawings(depths: Sequence[int]) -> Iterator[str]:
    """The lines before each name, for nodes that stand before the nodes below them.

    Nodes of one parent, and roots, are branches; one that is alone stands right below, without a branch.
    """
    above, last = _family(depths)
    children = Counter(above)
    below = {NOBODY: ""}  # parent -> what stands before its children
    for number, parent in enumerate(above):
        before, forks = below[parent], children[parent] > 1
        drawn = before + ("└─ " if last[number] else "├─ ") if forks else before
        below[number] = before + ("   " if last[number] else "│  ") if forks else before
        yield drawn if len(drawn) <= _DRAWN_MAX else f"{drawn[: _DRAWN_MAX - 2]}… "


def _family(depths: Sequence[int]) -> tuple[list[int], list[bool]]:
    """(parent of each node or NOBODY, whether it is the last of its parent)."""
    above = callers(depths)
    last = [True] * len(depths)
    latest: dict[int, int] = {}  # parent -> its latest child
    for number, parent in enumerate(above):
        if parent in latest:
            last[latest[parent]] = False
        latest[parent] = number
    return above, last
