"""`profctl diff`: Compare two traces: slower, faster, new, gone."""

from __future__ import annotations

from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.captured_view import heading
from profclient.cli.options import json_option
from profclient.cli.output import emit_json, printable, say, table
from profclient.cli.units import duration
from profclient.errors import UsageError
from profclient.traces import is_capture

WORSE = ("slower", "new")
NAME_CHARS = 100
WHAT_CHARS = 35  # of what is compared: less does not tell kernels or paths apart
NO_MODULE = "(no module)"  # as the engine names it


@click.command()
@click.argument("a")
@click.argument("b")
@click.option(
    "--by",
    type=click.Choice(["name", "path", "module"]),
    default="name",
    show_default=True,
    help="What the rows compare.",
)
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Number of rows; 0 = all.")
@click.option("--fail-above", metavar="SHARE", help="Exit with 1 if anything got slower by more than this: 5%.")
@json_option
def diff(a: str, b: str, by: str, limit: int, fail_above: str | None, as_json: bool) -> int:
    """Compare trace B with trace A: slower, faster, new, gone.

    The table compares self time, per step where both traces mark steps. With several steps
    a change within the noise between steps counts as no change.

    A and B may be captures. Each step of each rank then counts as one step.

    --fail-above 5% looks at the step, at the total time on the CPU and on each type of
    device, and at each row. The share is of that total in A.
    """
    if is_capture(a) != is_capture(b):
        raise UsageError("a capture is compared with a capture, a trace with a trace; `profctl list` lists traces.")
    most = None if fail_above is None else _share(fail_above)
    with traces() as source:
        answer = source.ask("diff", a, other=b, by=by).value()
    too_slow = [] if most is None else exceeding(answer, most)
    if as_json:
        emit_json({**answer, "fail_above": most, "failed": None if most is None else bool(too_slow)})
    else:
        _print(answer, limit)
        for row in too_slow[:5]:
            where = f" on {row['device_type']}" if row["device_type"] else ""
            say(f"too slow: {printable(_label(row))[:NAME_CHARS]}{where} by {_change(row)}, above {fail_above} of all")
    return 1 if too_slow else 0


def exceeding(answer: dict[str, Any], most: float) -> list[dict[str, Any]]:
    """Totals and rows that got slower, beyond the noise, by more than this share of the total they belong to."""
    lines = [*answer["totals"], *answer["rows"]]
    worse = [row for row in lines if row["change"] in WORSE and row["delta_ns"] > (row["noise_ns"] or 0)]
    return [row for row in worse if (row["share"] or 0.0) > most]


def _share(text: str) -> float:
    """`5%` or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"--fail-above {text!r} is no share; write it like 5% or 0.05.")
    return value


def _print(answer: dict[str, Any], limit: int) -> None:
    changed = [row for row in answer["rows"] if row["change"] != "same"]
    same = len(answer["rows"]) - len(changed)
    for side, capture in zip("AB", answer.get("captures", []), strict=False):
        say(f"{side}  {heading(capture)}")
    shown = [*answer["totals"], *(changed[:limit] if limit else changed)]
    numbers = ["A", "B", "CHANGE", "NOISE", "CALLS"]
    columns = ["", *numbers, "WHERE", "WHAT"]
    cells = (_cells(row) for row in shown)
    ends = ["WHAT"] if answer["by"] == "path" else []
    table(columns, cells, right=numbers, wide=["WHAT"], spare=["CALLS", "NOISE"], least=WHAT_CHARS, ends=ends)
    per = "per step" if answer["per"] == "step" else "in all"
    say(f"Self time {per}; {len(changed):,} changed, {same:,} did not" + (" (cut)." if answer["truncated"] else "."))
    if answer["message"]:
        say(printable(answer["message"]))
    if side := with_python_calls(answer["rows"]):
        say(
            f"Python calls were recorded in {side} alone (--stacks): what they took is part of other rows in the other."
        )
    if answer["by"] == "module" and (bare := without_modules(answer["rows"])):
        say(f"Nothing in {' and '.join(bare)} says which module it ran in: `profctl start --stacks --modules` does.")


def with_python_calls(rows: list[dict[str, Any]]) -> str:
    """A or B, where one of them has calls of Python functions and the other none; else empty."""
    calls = [row for row in rows if ".py: " in (row["path"][-1] if row.get("path") else row["name"])]
    has = [side for side, field in (("A", "a_count"), ("B", "b_count")) if any(row[field] for row in calls)]
    return has[0] if len(has) == 1 else ""


def without_modules(rows: list[dict[str, Any]]) -> list[str]:
    """The names of A and B that have no work in any module, by the rows of a diff by module."""
    named = [row for row in rows if row["name"] != NO_MODULE]
    return [side for side, field in (("A", "a_count"), ("B", "b_count")) if not any(row[field] for row in named)]


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["change"],
        duration(row["a_ns"]),
        duration(row["b_ns"]),
        f"{row['ratio'] - 1:+.1%}" if row["ratio"] else _change(row),
        duration(row["noise_ns"]),
        " to ".join(dict.fromkeys((_count(row["a_count"]), _count(row["b_count"])))),
        row["device_type"] or "",
        _label(row),
    ]


def _count(calls: float) -> str:
    """Calls per step are seldom whole: three digits of a few, no fractions of many."""
    return f"{calls:,.0f}" if calls >= 100 else f"{calls:.3g}"


def _change(row: dict[str, Any]) -> str:
    delta = row["delta_ns"]
    text = ("+" if delta > 0 else "") + duration(delta)
    return text if not row["ratio"] else f"{text} ({row['ratio'] - 1:+.1%})"


def _label(row: dict[str, Any]) -> str:
    return " > ".join(row["path"]) if row.get("path") else str(row["name"])
