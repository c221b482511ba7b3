"""The jobs of the daemon's workers, by name: to store a trace, and to answer a question of the table."""

from __future__ import annotations

from typing import Final

from profd.answers.hangs.recalled import JUDGE_HANG
from profd.model.question import Cost
from profd.questions.table import QUESTIONS, directory, index
from profd.workers import jobs

JOBS: Final[dict[str, str]] = {
    # args: files [{"format": a name of decode/open.py, "label": str, "fd": index}], staging (directory, exists,
    #       empty), meta (what the trace is to say of itself). -> events, gpu_events, start_ns, end_ns,
    #       bytes, lost [{stage, reason, count}], warnings, truncated
    "store_trace": "profd.importing.pipeline:store_trace",
    # args and result: `answers/hangs/job.py`.
    JUDGE_HANG: "profd.answers.hangs.job:judged",
    # args and result: `questions/answer.py`.
    **{name: f"profd.questions.answer:job_of/{name}" for name, one in QUESTIONS.items() if one.function},
}

SHORT: Final = frozenset(
    {JUDGE_HANG, *(question.name for question in QUESTIONS.values() if question.cost is Cost.SHORT)}
)
"""Jobs that nobody's reading holds: `workers/asked.py` gives them the turn of a question."""

GLANCES: Final = frozenset(question.name for question in QUESTIONS.values() if question.cost is Cost.GLANCE)
"""Jobs that somebody moves about with: they have a lane of their own there."""

_OTHERS: Final = [other.name for question in QUESTIONS.values() for other in question.others]
_TRACES: Final = tuple(dict.fromkeys(("trace", *_OTHERS)))
DIRECTORIES: Final = tuple(map(directory, _TRACES))
"""What jobs read of the store: `workers/gate.py` lets a worker at these, and at nothing that an asker may name."""
INDEXES: Final = {index(name): directory(name) for name in _TRACES}
"""The same of rollups, which may be there: by which of these."""


def find(name: str) -> jobs.Job:
    """The job of this name. KeyError if there is none."""
    return jobs.find(name, JOBS)
