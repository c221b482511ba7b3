"""Steps of JAX and TensorFlow: the roots that StepTraceAnnotation marks, and the operators each of them led to."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from profd.derive.steps import STEP_COLUMNS, Steps
from profd.derive.timeline.current import derive
from profd.derive.timeline.lines import What
from profd.derive.timeline.space import MISSING
from profd.errors import Exhausted
from profd.events import NO_END
from profd.query import rules
from profd.query.space import is_xspace, numbers_of, read_space, spellings
from profd.segments.reader import TraceReader

ANNOTATION: Final = "StepTraceAnnotation"
_LEVEL: Final = "_r"
_NUMBER: Final = "step_num"
_OPS_SHOWN: Final = 5
Root = tuple[int, int, int, int, str, int]  # thread, start, end, level, name, number


def annotated_steps(reader: TraceReader) -> Steps:
    """The roots of groups (docs/timeline.md) that are in no other of their level, in start order."""
    roots: list[Root] = []
    for table in reader.iterate(STEP_COLUMNS, args={*spellings(_LEVEL), *spellings(_NUMBER)}):
        level, number, end = numbers_of(table, _LEVEL), numbers_of(table, _NUMBER), table.column("end")
        rows = np.flatnonzero((level != MISSING) & rules.is_cpu(table.column("device_type")) & (end != NO_END))
        names = rules.names_of(table)
        for row, code in zip(rows.tolist(), table.column("name")[rows].tolist(), strict=True):
            span = int(table.column("thread")[row]), int(table.columns["start"][row]), int(end[row])
            roots.append((*span, int(level[row]), names[code] if code >= 0 else "", int(number[row])))
    kept = _outermost(roots)
    titles = [f"{name} {place if number == MISSING else number}" for place, (*_, name, number) in enumerate(kept)]
    order = sorted(range(len(kept)), key=lambda at: kept[at][1])
    thread, start, end = (np.array([kept[at][column] for at in order], dtype=np.int64) for column in range(3))
    return Steps(start, end, [titles[at] for at in order], thread.astype(np.int32), ANNOTATION if kept else "")


def _outermost(roots: list[Root]) -> list[Root]:
    """Rows without another of their level around them on their thread; high levels first, as groups are numbered."""
    kept = []
    until: dict[tuple[int, int], int] = {}  # by thread and level
    for root in sorted(roots, key=lambda root: (root[1], -root[2])):
        thread, _, end, level, *_ = root
        if end > until.get((thread, level), -1 << 63):
            kept.append(root)
            until[thread, level] = end
    return sorted(kept, key=lambda root: (-root[3], root[1], -root[2]))


def ops_of_steps(reader: TraceReader, steps: Steps) -> list[list[dict[str, Any]] | None]:
    """The operators that took longest on devices for each step, whenever they ran; None for traces that are no XSpace.

    Framework operators where the trace tells them, else XLA ops. None also for a trace that is too large for a worker.
    """
    if not is_xspace(reader):
        return [None] * len(steps)
    try:
        lines, groups = derive(read_space(reader))
    except Exhausted:
        return [None] * len(steps)
    place = {name: at for at, name in reversed(list(enumerate(steps.name)))}
    told = {line.what for line in lines}
    wanted = What.OPS if What.OPS in told else What.XLA_OPS
    spent: list[Counter[str]] = [Counter() for _ in steps.name]
    times: list[Counter[str]] = [Counter() for _ in steps.name]
    for line in lines:
        if line.what is not wanted:
            continue
        for start, end, group, (name, long_name), _ in line.events.rows():
            step = place.get(groups.name(group)) if group is not None else None
            if step is not None:
                spent[step][long_name or name] += end - start
                times[step][long_name or name] += 1
    return [
        [{"name": name, "duration_ns": took // 1000, "n": counts[name]} for name, took in most.most_common(_OPS_SHOWN)]
        for most, counts in zip(spent, times, strict=True)
    ]
