"""A map of ranks by steps in the terminal: the darker, the later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from profclient.cli.captured_view import place
from profclient.cli.output import printable, room, say, wrapped

ROWS_MAX: Final = 64
COLUMNS_MAX: Final = 120
_SHADES: Final = ((0.02, "·"), (0.1, "░"), (0.25, "▒"), (0.5, "▓"))  # below this share of a step
_DARKEST: Final = "█"
_OF: Final = {
    "work": "late, as a share of a step",
    "step": "steps longer than those of the others, as a share of a step",
}


def print_heat(heat: dict[str, Any]) -> None:
    """Nothing where no step of one rank is known to be that of another."""
    rows = heat["rows"]
    if not rows or not heat["steps"]:
        return
    shown = _worst_rows(rows)
    labels = [printable(place(row)) for row in shown]
    wide = max(map(len, labels))
    columns = max(min(COLUMNS_MAX, room(wide + 2)), 1)
    together = -(-len(heat["steps"]) // columns)
    steps = heat["steps_together"] * together
    each = "a column is a step" if steps == 1 else f"a column is {steps} steps, the worst of them"
    scale = "  ".join(f"{mark} < {share:.0%}" for share, mark in _SHADES)
    key = f"{_OF[heat['of']]}: {scale}  {_DARKEST} more; {each}, {heat['steps'][0]} to {heat['steps'][-1]}"
    click.echo("\n" + wrapped(key, 2))
    for label, row in zip(labels, shown, strict=True):
        late = row["late"]
        cells = (_cell(late[at : at + together]) for at in range(0, len(late), together))
        click.echo(f"{label:{wide}}  {''.join(cells)}")
    if len(shown) < len(rows):
        say(f"{len(rows) - len(shown):,} ranks more, which are late by less; --json has all.")


def _worst_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with most, in their order."""
    if len(rows) <= ROWS_MAX:
        return list(rows)
    most = sorted(rows, key=lambda row: -sum(max(one or 0, 0) for one in row["late"]))[:ROWS_MAX]
    return [row for row in rows if any(row is one for one in most)]


def _cell(late: Sequence[float | None]) -> str:
    known = [one for one in late if one is not None]
    if not known:
        return " "
    return next((mark for share, mark in _SHADES if max(known) < share), _DARKEST)
