"""Output of commands: tables for people, JSON for machines, and nothing that a name could smuggle in.

Results go to stdout, progress and remarks to stderr.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from profclient.text import printable as printable
from profclient.text import printable_lines

GAP = 2  # between columns
WIDE_MIN = 10  # of a column that gives way: less says nothing
WRAPPED_MIN = 20  # columns for wrapped text, however narrow the terminal
_DIGITS_MAX = 6  # of a width
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[num]?s|[kMGT]?B|%)(?!\w))")
_NOT_ASCII = re.compile(r"[^\x00-\x7e]")  # JSON has no control character below
_SCRIPT = re.compile(r"((?:python|pypy)\S* (?:-(?!\w*c )\S+ )*)[^\s…-]\S*/(?=\S)")  # a command line up to the file
_FOLDER = re.compile(r"^.*/(?=[^/]*\.py\(\d+\): )")
_TOLD_APART_BY_ITS_END = re.compile(r"\.py\(\d+\): |#\d+$|^[^\s/]*(?:/[^\s/]*){2,}$")  # Python functions, steps, paths


def one_line(text: str) -> str:
    """`printable`, and runs of white space (a program on a command line) as one space."""
    return printable(" ".join(text.split()))


def short(command: str) -> str:
    """A command line as people look for it: of the path of an interpreter, which fills a terminal, the name alone."""
    program, space, rest = command.partition(" ")
    name = program.rpartition("/")[2]
    return f"{name}{space}{rest}" if rest and name.startswith(("python", "pypy")) else command


def console(err: bool = False) -> Console:
    """A console on stdout (or stderr) that heeds NO_COLOR and --no-color."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else said_columns(160)
    plain = _no_color()
    return Console(file=stream, width=width, no_color=plain, highlight=False, soft_wrap=False)


def _no_color() -> bool:
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("no_color"))


def emit_json(value: Any) -> None:
    """One JSON document on stdout."""
    indent = None if not sys.stdout.isatty() else 2
    text = _NOT_ASCII.sub(_shown, json.dumps(value, indent=indent, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # halves of letters, of foreign traces: no UTF-8 has them; other encodings have little
        text = json.dumps(value, indent=indent)
    click.echo(text)


def _shown(letter: re.Match[str]) -> str:
    """A letter that terminals may obey (C1 controls, marks of direction) as JSON's escape; others as they are."""
    return letter[0] if letter[0].isprintable() else json.dumps(letter[0])[1:-1]


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right: Sequence[str] = (),
    wide: Sequence[str] = (),
    spare: Sequence[str] = (),
    least: int = WIDE_MIN,
    ends: Sequence[str] = (),
    nothing: Sequence[str] = (),
) -> None:
    """Print a table that fits the terminal.

    Columns in `right` are numbers. Columns in `wide` share the room that the others leave over, and are cut with an
    ellipsis: at the end; on the command line of a Python program instead of its folder; or, in columns in `ends` and
    where the end tells names apart (`adam.py(347): step`, `ProfilerStep#101`, paths), at the beginning. Where one of
    them has less room than `least`, columns that hold nothing but dashes are left out, then those in `spare`, the
    first one first: a remark on stderr names them. Columns of nothing but the cells in `nothing` are left out however
    wide the terminal is.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    if nothing:
        columns, cells = _without(_only(nothing, columns, cells), columns, cells)
    if not _fits(columns, cells, wide, least):
        columns, cells = _without(_only(("", "-"), columns, cells), columns, cells)
    missing = []
    for name in spare:
        if name in columns and not _fits(columns, cells, wide, least):
            columns, cells = _without({name}, columns, cells)
            missing.append(name)
    widths = _widths(columns, cells, wide)
    click.echo(click.style(_row(columns, columns, widths, right, ends), bold=True), color=_color())
    for row in cells:
        click.echo(_row(row, columns, widths, right, ends))
    if missing:
        say(f"No room for {', '.join(missing)}: a wider terminal shows more.")


def _only(nothing: Sequence[str], columns: Sequence[str], cells: list[list[str]]) -> set[str]:
    """Columns whose cells are all among these."""
    return {name for at, name in enumerate(columns) if all(row[at] in nothing for row in cells)}


def _fits(columns: Sequence[str], cells: list[list[str]], wide: Sequence[str], least: int) -> bool:
    natural = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    needed = [min(width, least) if name in wide else width for width, name in zip(natural, columns, strict=True)]
    return not cells or sum(needed) + GAP * (len(needed) - 1) <= _screen_width()


def _without(
    left_out: set[str], columns: Sequence[str], cells: list[list[str]]
) -> tuple[Sequence[str], list[list[str]]]:
    kept = [index for index, name in enumerate(columns) if name not in left_out]
    return [columns[index] for index in kept], [[row[index] for index in kept] for row in cells]


def _widths(columns: Sequence[str], cells: list[list[str]], wide: Sequence[str]) -> list[int]:
    """The width of each column: as wide as its content, less where it must give way."""
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    fixed = sum(width + GAP for width, name in zip(widths, columns, strict=True) if name not in wide)
    left = _screen_width() + GAP - fixed  # behind the last column is no gap
    giving = sorted((index for index, name in enumerate(columns) if name in wide), key=lambda index: widths[index])
    for place, index in enumerate(giving):  # what the narrow ones do not need is the others'
        share = left // (len(giving) - place) - GAP
        widths[index] = min(widths[index], max(share, WIDE_MIN))
        left -= widths[index] + GAP
    return widths


def _row(
    cells: Sequence[str], columns: Sequence[str], widths: list[int], right: Sequence[str], ends: Sequence[str]
) -> str:
    padded = []
    for cell, name, width in zip(cells, columns, widths, strict=True):
        text = cut(cell, width, name in ends)
        space = " " * (width - cell_len(text))
        padded.append(space + text if name in right else text + space)
    return (" " * GAP).join(padded).rstrip()


def _cut(cell: str, width: int, keep_end: bool = False) -> str:
    if not keep_end and (folder := _SCRIPT.match(cell)):
        return cut(f"{folder[1]}…/{cell[folder.end() :]}", width)
    if not keep_end and not _TOLD_APART_BY_ITS_END.search(cell):
        return set_cell_size(cell, width - 1).rstrip() + "…"
    leaf = cell.rpartition(" > ")[2] if keep_end else ""
    if cell_len(leaf) > width - 2:  # what a long leaf begins with says more than how it ends
        return _cut(leaf, width)
    end = cell[-width:]
    while cell_len(end) >= width:
        end = end[1:]
    return "…" + end.lstrip()


def _screen_width() -> int:
    """The width of the terminal; without one, wide enough for anything."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return said_columns(240)


def said_columns(otherwise: int) -> int:
    """What COLUMNS says; `otherwise` where it is not there, or is no width."""
    said = os.environ.get("COLUMNS", "")
    return max(int(said), 1) if said.isascii() and said.isdigit() and len(said) <= _DIGITS_MAX else otherwise


def room(used: int) -> int:
    """Columns of the terminal that are left where so many are used."""
    return _screen_width() - used


def wrapped(text: str, hang: int) -> str:
    """The text in lines that fit the terminal, all but the first indented by `hang`; words are never broken, and a
    number stays with its unit.

    Where nobody looks (a pipe, and COLUMNS is not set), it stays one line.
    """
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return text
    indent = " " * hang
    width = max(_screen_width(), hang + WRAPPED_MIN)
    joined = _BEFORE_UNIT.sub(_NO_BREAK, text)
    lines = textwrap.wrap(joined, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_NO_BREAK, " ")


def fitted(text: str, used: int, keep_end: bool = False) -> str:
    """The text, cut with an ellipsis where the line, of which so many columns are used, has no room for it.

    With `keep_end` (a stack) its beginning gives way.
    """
    return cut(text, max(_screen_width() - used, WIDE_MIN), keep_end)


def cut(text: str, width: int, keep_end: bool = False) -> str:
    """The text in so many columns at most, with an ellipsis where that is not all of it."""
    return text if cell_len(text) <= width else _cut(text, width, keep_end)


def without_folder(frame: str) -> str:
    """A Python function's name without the folder of its file."""
    return _FOLDER.sub("", frame)


def stack_text(frames: Sequence[str]) -> str:
    """Frames, innermost first, as one line that ends with the innermost; files without their folders."""
    return " > ".join(map(without_folder, reversed(frames)))


def _color() -> bool | None:
    return False if _no_color() else None


def say(text: str) -> None:
    """A remark for a person, on stderr."""
    click.echo(printable_lines(text), err=True)


def counted(number: int, noun: str) -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
