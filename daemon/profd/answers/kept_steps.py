"""The steps of a whole trace, as `explain` keeps them: of a part, too, they are numbered from the trace's begin."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from profd.derive.steps import Steps
from profd.query.part import all_steps
from profd.query.steps import StepMarks
from profd.segments.reader import TraceReader
from profd.segments.rollups import kept_value

NAME: Final = "explain-steps"
_NUMBERS: Final = ("start", "end", "thread")
_KEYS: Final = {*_NUMBERS, "name", "how"}
_BELOW: Final = 1 << 63
_TRACK_MAX: Final = (1 << 31) - 1


def kept_steps(reader: TraceReader, marks: StepMarks | None = None) -> Steps:
    """All steps of a trace, as they were kept, or of `marks` of all its events; None: which are read."""
    kept = kept_value(reader.rollups, NAME, _fits, lambda: _worked_out(reader, marks))
    start, end, thread = (np.array(kept[name], dtype=np.int64) for name in _NUMBERS)
    return Steps(start, end, kept["name"], thread.astype(np.int32), kept["how"])


def _worked_out(reader: TraceReader, marks: StepMarks | None) -> dict[str, Any]:
    steps = all_steps(reader) if marks is None else marks.steps(reader)
    numbers = {name: getattr(steps, name).tolist() for name in _NUMBERS}
    return {**numbers, "name": list(steps.name), "how": steps.how}


def _fits(kept: Any) -> bool:
    """Whether it is what was written: steps in order of their start."""
    if not isinstance(kept, dict) or kept.keys() != _KEYS or not isinstance(kept["how"], str):
        return False
    lists = [kept[name] for name in (*_NUMBERS, "name")]
    if not all(isinstance(one, list) and len(one) == len(lists[0]) for one in lists):
        return False
    start, end, thread, names = lists
    return (
        all(type(value) is int and -_BELOW <= value < _BELOW for value in (*start, *end, *thread))
        and all(isinstance(name, str) for name in names)
        and all(-1 <= one <= _TRACK_MAX for one in thread)
        and all(before <= after for before, after in pairwise(start))
    )
