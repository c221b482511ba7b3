"""The jobs a worker knows, by name: to store a trace, and to answer a question of the table.

A job is `def job(args, fds, progress) -> dict`: `args` and the result are JSON
values, `fds` are open descriptors (inputs, outputs) that belong to the job,
`progress(what, share)` may be called as often as it likes (share 0..1, or -1).
What it raises as ProfdError reaches the caller as the same type; anything else
becomes JobFailed. Jobs never open the network and never start processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from profd.questions.table import QUESTIONS

Progress = Callable[[str, float], None]
Job = Callable[[dict[str, Any], list[int], Progress], dict[str, Any]]

# Named by import path: a worker imports what it is asked for, nothing else.
JOBS: Final[dict[str, str]] = {
    # args: files [{"format": a name of decode/open.py, "label": str, "fd": index}], staging (directory, exists,
    #       empty), meta (what the trace is to say of itself). -> events, gpu_events, start_ns, end_ns,
    #       bytes, lost [{stage, reason, count}], warnings, truncated
    "store_trace": "profd.importing.pipeline:store_trace",
    # args and result: `questions/answer.py`.
    **{question.name: question.function for question in QUESTIONS.values()},
}
_ANSWER: Final = "profd.questions.answer:answer"


def find(name: str, jobs: Mapping[str, str] = JOBS) -> Job:
    """The function behind a job's name. KeyError if there is none."""
    function: Job = imported(jobs[name])
    return partial(imported(_ANSWER), QUESTIONS[name], function) if name in QUESTIONS else function


def imported(path: str) -> Any:
    """What lies at "module:name"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
