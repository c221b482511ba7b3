"""Loops of TensorFlow 1: what the executor processes for one iteration of one step is a group of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.derive.timeline.space import MISSING, Space

PROCESS: Final = "ExecutorState::Process"
# Loops of other kinds, which XProf does not group either.
_UNCLEAR: Final = frozenset({"WhileOp-EvalCond", "WhileOp-StartBody", "ForOp", "ParallelForOp", "ForeverOp"})
# Functions of tf.data: their steps are none of the job.
_INPUT: Final = frozenset(
    f"InstantiatedCapturedFunction::{name}" for name in ("Run", "RunWithBorrowedArgs", "RunInstantiated", "RunAsync")
)


@dataclass(frozen=True, slots=True)
class Loops:
    """Events of each iteration, by start, iterations by their first events; or `unclear`: the trace has no groups."""

    iterations: list[list[int]]
    unclear: bool = False


def find_loops(space: Space) -> Loops:
    """By the stats `id` (of the step) and `iter_num`. A step that has iteration 0 alone is no loop."""
    used = {space.words[code] for code in np.unique(space.name).tolist()}
    if used & _UNCLEAR:
        return Loops([], unclear=True)
    if PROCESS not in used:
        return Loops([])
    steps, numbers = space.number("id"), space.number("iter_num")
    named = np.array([word in _INPUT for word in space.words], dtype=np.bool_)
    inputs = np.unique(steps[named[space.name]])
    rows = np.flatnonzero(space.name == space.words.index(PROCESS))
    rows = rows[(steps[rows] != MISSING) & (numbers[rows] != MISSING) & ~np.isin(steps[rows], inputs)]
    rows = rows[np.lexsort((-space.end[rows], space.start[rows]))]
    found: dict[int, dict[int, list[int]]] = {}
    for row, step, number in zip(rows.tolist(), steps[rows].tolist(), numbers[rows].tolist(), strict=True):
        found.setdefault(step, {}).setdefault(number, []).append(row)
    loops = [own for iterations in found.values() if set(iterations) != {0} for own in iterations.values()]
    place = {row: number for number, row in enumerate(rows.tolist())}
    return Loops(sorted(loops, key=lambda own: place[own[0]]))
