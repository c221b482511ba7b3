"""The traces in an answer about a capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profclient.cli.output import counted, printable, say

_SHOWN = 3  # traces that are left out, by name


def say_of_traces(answer: dict[str, Any]) -> None:
    """Name the traces that answered, missing ranks, and traces that were left out; beside the table."""
    say(heading(answer))
    without = [*answer.get("unread", []), *answer.get("left_out", [])]
    for one in without[:_SHOWN]:
        say(printable(f"without {place(one)}: {one['why']}"))
    if (more := len(without) - _SHOWN) > 0:
        say(f"… and without {counted(more, 'trace')} more; --json names them.")


def heading(answer: dict[str, Any]) -> str:
    """`c0123456789ab: 8 traces, ranks 0-3, 5-7 on 2 hosts; no trace of rank 4`."""
    traces = answer["traces"]
    ranks = sorted({one["rank"] for one in traces if one["rank"] is not None})
    hosts = {one["host"] for one in traces}
    words = [counted(len(traces), "trace")]
    if ranks:
        words.append(f"{_word(len(ranks), 'rank')} {ranges(_runs(ranks))}")
    text = f"{answer['capture']}: {', '.join(words)} on {counted(len(hosts), 'host')}"
    if missing := answer["missing_ranks"]:
        text += f"; no trace of rank {ranges(missing)}"
    if gone := answer.get("missing_hosts"):
        text += f"; nothing came from {_word(len(gone), 'host')} {', '.join(gone[:_SHOWN])}"
        text += f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
    if shared := answer["shared_ranks"]:
        text += f"; several traces of {_word(len(shared), 'rank')} {ranges(_runs(shared))}"
    return printable(text)


def place(row: dict[str, Any]) -> str:
    """The trace of a row, for people: its rank, or its id where it has no rank."""
    return f"trace {row['trace']}" if row["rank"] is None else f"rank {row['rank']}"


def ranges(runs: Sequence[Sequence[int]]) -> str:
    """`0-3, 5`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return runs


def _word(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
