"""The job that answers a question: any of the table, by its function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from profd.model.question import AnswerKind, Cost, Question, Scope
from profd.query.captured import Captured
from profd.questions.packed import ASKS, KEPT_ONLY, PACKED, Layout, unpacked
from profd.questions.table import QUESTIONS, absent, directory, index
from profd.segments import plain_json
from profd.segments.meta import META_FILE, TraceMeta, decode_meta
from profd.segments.place import Absent
from profd.segments.reader import TraceReader
from profd.segments.rollups import NeedsEvents, NeedsStaging, Rollups, rules_of
from profd.workers.jobs import Job, Progress, imported

_STAGING: Final = "staging"


def job_of(name: str) -> Job:
    """The job that answers the question of this name."""
    return partial(answer, QUESTIONS[name])


def answer(question: Question, args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """The answer as `{"value": ...}` where it is short and there is no descriptor; otherwise it goes to `fds[0]`.

    `args`: `trace_dir`, a directory for each other trace, and arguments by name. Where a capture is asked, there is a
    list of directories in the place of each. `trace_absent` and so on: what a capture
    lacks (`segments.place.Absent`). `trace_index` and so on: where rollups of the traces lie; `staging`: where
    new ones are written (`segments/rollup_files.py`). `packed`: in the place of the directories what was kept of the
    traces, by their arguments; it is in the last of `fds` (`questions/packed.py`). `kept_only`: events are not read.
    Returned of a long answer: how many `rows` or `events` it has, where it has any; `needs_events`: what was kept does
    not answer it, and nothing was written; `needs_staging`: the same of a job that `asks`, in the place of a
    `staging`. Raises BadInput for arguments that the table does not allow, NotFound and BadTrace for a trace that
    cannot be read, and what the function raises.
    """
    others = [other.name for other in question.others]
    names = ["trace", *others]
    ours = {_STAGING, ASKS, KEPT_ONLY, PACKED, *map(directory, names), *map(index, names), *map(absent, names)}
    scope = Scope.TRACE if isinstance(args.get("trace_dir"), str) else Scope.CAPTURE
    arguments = question.checked({name: value for name, value in args.items() if name not in ours}, scope)
    arguments = {name: value for name, value in arguments.items() if name not in others}
    function = imported(question.function if scope is Scope.TRACE else question.of_capture)
    if PACKED in args:
        return _answer_kept(question, partial(function, **arguments), [args[PACKED][name] for name in names], fds)
    rollups = _rollups(question, names, args)
    traces = [_opened(args[directory(name)], rollups, args.get(absent(name), {})) for name in names]
    try:
        return _answered(question, partial(function, *traces, **arguments), fds, progress)
    except NeedsStaging:
        return {"needs_staging": True}
    except NeedsEvents:
        return {"needs_events": True}


def _answered(
    question: Question, function: Callable[..., Any], fds: Sequence[int], progress: Progress
) -> dict[str, Any]:
    """What `function` finds: returned, or written."""
    if question.cost is not Cost.LONG and not fds:
        return {"value": function()}
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        if question.answer is AnswerKind.BYTES:
            return {"events": function(out, progress)}
        found = function()
        if question.answer is AnswerKind.ROWS:
            return {"rows": _write_rows(found, out, progress)}
        _write_value(found, out)
    return {}


def _answer_kept(
    question: Question, function: Callable[..., Any], layouts: Sequence[Layout], fds: Sequence[int]
) -> dict[str, Any]:
    """The answer to captures by what was kept of their traces, or that it needs their events."""
    rules = rules_of(question.rollups_of or question.name, question.version)
    captures = [Captured.of_kept(_kept(files, rules) for files in of_all) for of_all in unpacked(fds[-1], layouts)]
    try:
        found = function(*captures)
    except NeedsEvents:
        return {"needs_events": True}
    if question.cost is Cost.SHORT and len(fds) == 1:
        return {"value": found}
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        _write_value(found, out)
    return {}


def _kept(files: Mapping[str, memoryview], rules: str) -> tuple[TraceMeta, Rollups]:
    return decode_meta(bytes(files[META_FILE]), META_FILE), Rollups(files, rules=rules)


def _rollups(question: Question, names: Sequence[str], args: dict[str, Any]) -> Iterator[Rollups]:
    """The rollups of each trace that is asked, in the order of their arguments."""
    fresh = Path(args[_STAGING]) if _STAGING in args else None
    rules = rules_of(question.rollups_of or question.name, question.version)
    number = 0
    for name in names:
        kept = args.get(index(name))
        for place in _listed(args[directory(name)]) if kept is None else _listed(kept):
            yield Rollups(
                *(None if kept is None else Path(place), fresh, number, rules),
                asks=ASKS in args,
                kept_only=KEPT_ONLY in args,
            )
            number += 1


def _listed(place: str | list[str]) -> list[str]:
    return [place] if isinstance(place, str) else place


def _opened(place: str | list[str], rollups: Iterator[Rollups], missing: Mapping[str, Any]) -> TraceReader | Captured:
    if isinstance(place, str):
        return TraceReader(Path(place), next(rollups))
    return Captured([Path(one) for one in place], [*islice(rollups, len(place))], Absent(**missing))


def _write_rows(pieces: Iterator[tuple[int, bytes]], out: BinaryIO, progress: Progress) -> int:
    written = 0
    for count, lines in pieces:
        out.write(lines)
        out.flush()  # somebody may be waiting for these
        written += count
        progress("answering", -1)
    return written


def _write_value(value: Any, out: BinaryIO) -> None:
    if not isinstance(value, Iterator):
        out.write(plain_json.dumps(value).encode("ascii") + b"\n")
        return
    with closing(value) as pieces:  # type: ignore[type-var]  # a generator: what it holds open is let go of at once
        for piece in pieces:
            out.write(piece)
