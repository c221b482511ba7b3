"""The job that answers a question: any of the table, by its function."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from profd.model.question import AnswerKind, Cost, Question, Scope
from profd.query.captured import Captured
from profd.questions.table import QUESTIONS, directory
from profd.segments.reader import TraceReader
from profd.workers.jobs import Job, Progress, imported


def job_of(name: str) -> Job:
    """The job that answers the question of this name."""
    return partial(answer, QUESTIONS[name])


def answer(question: Question, args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """The answer as `{"value": ...}` where it is short and there is no descriptor; otherwise it goes to `fds[0]`.

    `args`: `trace_dir`, a directory for each other trace, and arguments by name. Where a capture is asked, there is a
    list of directories in the place of each. Returned of a long answer: how many `rows` or `events` it has, where it
    has any. Raises BadInput for arguments that the table does not allow, NotFound
    and BadTrace for a trace that cannot be read, and what the function raises.
    """
    others = [other.name for other in question.others]
    places = [directory(name) for name in ("trace", *others)]
    scope = Scope.CAPTURE if isinstance(args["trace_dir"], list) else Scope.TRACE
    arguments = question.checked({name: value for name, value in args.items() if name not in places}, scope)
    arguments = {name: value for name, value in arguments.items() if name not in others}
    traces = [_opened(args[place]) for place in places]
    function = imported(question.function if scope is Scope.TRACE else question.of_capture)
    if question.cost is Cost.SHORT and not fds:
        return {"value": function(*traces, **arguments)}
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        if question.answer is AnswerKind.BYTES:
            return {"events": function(*traces, out, progress, **arguments)}
        found = function(*traces, **arguments)
        if question.answer is AnswerKind.ROWS:
            return {"rows": _write_rows(found, out, progress)}
        _write_value(found, out)
    return {}


def _opened(place: str | list[str]) -> TraceReader | Captured:
    return TraceReader(Path(place)) if isinstance(place, str) else Captured([Path(one) for one in place])


def _write_rows(pieces: Iterator[tuple[int, bytes]], out: BinaryIO, progress: Progress) -> int:
    written = 0
    for count, lines in pieces:
        out.write(lines)
        written += count
        progress("answering", -1)
    return written


def _write_value(value: Any, out: BinaryIO) -> None:
    if not isinstance(value, Iterator):
        out.write(json.dumps(value).encode("ascii") + b"\n")
        return
    with closing(value) as pieces:  # type: ignore[type-var]  # a generator: what it holds open is let go of at once
        for piece in pieces:
            out.write(piece)
