"""The jobs `top`, `tree` and `summary` of the worker; see `workers/jobs.py` for their arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from profd.errors import BadInput
from profd.query.averages import SORT_DEFAULT, Grouping, averages_of_trace, sort_averages
from profd.query.summary import summarise
from profd.query.tree import tree_lines
from profd.store.reader import TraceReader
from profd.workers.jobs import Progress


def top(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Key averages: `{"rows": [...]}`, sorted and cut to `limit` (0 or absent: all)."""
    grouping = Grouping(bool(args.get("group_by_input_shape")), _count(args, "group_by_stack_n"))
    limit = _count(args, "limit")
    key = args.get("sort_by") or SORT_DEFAULT
    sort_averages([], key)  # a wrong key is told before the work
    rows = averages_of_trace(_open(args), raw=bool(args.get("raw")), grouping=grouping)
    ordered = sort_averages(rows, key)
    return {"rows": [row.as_json() for row in (ordered[:limit] if limit else ordered)]}


def tree(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """The tree as JSON lines to `fds[0]`: `{"rows": n}`."""
    reader = _open(args)
    written = 0
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        for count, lines in tree_lines(reader, _count(args, "max_depth"), args.get("from_row")):
            out.write(lines)
            written += count
            progress("tree", written / max(len(reader), 1))
    return {"rows": written}


def summary(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """The summary of docs/json.md."""
    return summarise(_open(args))


def _open(args: dict[str, Any]) -> TraceReader:
    return TraceReader(Path(args["trace_dir"]))


def _count(args: dict[str, Any], name: str) -> int:
    value = args.get(name) or 0
    if not isinstance(value, int) or value < 0:
        raise BadInput(f"{name} must be a number from 0, not {value!r}")
    return value
