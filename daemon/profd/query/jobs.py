"""The jobs of the worker that answer questions; see `workers/jobs.py` for their arguments."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from profd.errors import BadInput
from profd.query.averages import SORT_DEFAULT, Grouping, averages_of_trace, sort_averages
from profd.query.diff import diff as compare
from profd.query.gpu import gpu_of_trace
from profd.query.steps import steps_of_trace
from profd.query.summary import summarise
from profd.query.timeline import timeline_lines
from profd.query.tree import tree_lines
from profd.store.reader import TraceReader
from profd.workers.jobs import Progress

GROUPS: Final = ("module",)  # besides the name


def top(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Key averages: `{"rows": [...]}`, sorted and cut to `limit` (0 or absent: all)."""
    by_module = _group_by(args) == "module"
    grouping = Grouping(bool(args.get("group_by_input_shape")), _count(args, "group_by_stack_n"), by_module)
    limit = _count(args, "limit")
    key = args.get("sort_by") or SORT_DEFAULT
    sort_averages([], key)  # a wrong key is told before the work
    with_backward = bool(args.get("with_backward")) or key == "backward_time_total"
    rows = averages_of_trace(_open(args), raw=bool(args.get("raw")), grouping=grouping, with_backward=with_backward)
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


def steps(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """The steps one by one as JSON to `fds[0]`: `{"steps": n}`."""
    answer = steps_of_trace(_open(args))
    _write(answer, fds[0])
    return {"steps": answer["n"]}


def gpu(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """What the devices did as JSON to `fds[0]`: `{"streams": n}`."""
    answer = gpu_of_trace(_open(args))
    _write(answer, fds[0])
    return {"streams": len(answer["streams"])}


def timeline(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Derived lines as JSON lines to `fds[0]`: `{"rows": n}`."""
    written = 0
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        for count, lines in timeline_lines(_open(args), args.get("lines") or (), args.get("rules") or ""):
            out.write(lines)
            written += count
            progress("timeline", -1)
    return {"rows": written}


def diff(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Two traces compared, as JSON to `fds[0]`: `{"rows": n}`."""
    answer = compare(_open(args), _open(args, "other_dir"), str(args.get("by") or "name"))
    _write(answer, fds[0])
    return {"rows": len(answer["rows"])}


def _write(answer: dict[str, Any], fd: int) -> None:
    with os.fdopen(os.dup(fd), "wb") as out:
        out.write(json.dumps(answer).encode("ascii") + b"\n")


def _open(args: dict[str, Any], directory: str = "trace_dir") -> TraceReader:
    return TraceReader(Path(args[directory]))


def _group_by(args: dict[str, Any]) -> str:
    value = args.get("group_by") or ""
    if value not in ("", *GROUPS):
        raise BadInput(f"cannot group by {value!r}; group by one of: {', '.join(GROUPS)}")
    return str(value)


def _count(args: dict[str, Any], name: str) -> int:
    value = args.get(name) or 0
    if not isinstance(value, int) or value < 0:
        raise BadInput(f"{name} must be a number from 0, not {value!r}")
    return value
