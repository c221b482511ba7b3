"""What commands print: tables for people, JSON for machines, and nothing that a name could smuggle in.

Results go to stdout, progress and remarks to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

NARROW = 60  # below it a table would be unreadable: let the terminal wrap


def printable(text: str) -> str:
    """Text from targets and files without control characters: terminals obey those."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def console(err: bool = False) -> Console:
    """A console on stdout (or stderr) that heeds NO_COLOR and --no-color."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "160"))
    plain = _no_color()
    return Console(file=stream, width=width, no_color=plain, highlight=False, soft_wrap=False)


def _no_color() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("no_color"))


def emit_json(value: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=None if not sys.stdout.isatty() else 2, ensure_ascii=False))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), wide: Sequence[str] = ()
) -> None:
    """Print a table that fits the terminal.

    Columns in `right` are numbers; those in `wide` give way when there is no room.
    """
    view = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        flexible = name in wide
        view.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=True,
            overflow="ellipsis" if flexible else "fold",
            ratio=None,
            min_width=None if flexible else len(name),
        )
    for row in rows:
        view.add_row(*(escape(printable(cell)) for cell in row))
    console().print(view)


def say(text: str) -> None:
    """A remark for a person, on stderr."""
    click.echo(text, err=True)


def counted(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
