"""Device times of ops that CUDA events took (native/torch/device_times.cpp), for traces without device work.

As torch has it of its legacy events: the time between an op's two events is its device time, and less that of the ops
within it its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd import _engine
from profd.derive.ancestors import nearest
from profd.events import NO_ROW, EventTable
from profd.events.table import Array
from profd.query import rules

NAME: Final = "op device time (CUDA events, ns)"  # of the counter rows; their external id is the op's
COLUMNS: Final = ("external", "value")
_NS_MAX: Final = 1 << 53  # 104 days: what a double holds exactly


def own_times(table: EventTable, owners: Array, parent: Array) -> Array:
    """Device time of each op in ns less that of the ops within it; 0 in all other rows.

    `owners`: bytes that are 0 where a row is no op to have one. `parent`: the row of the call around it, or NO_ROW.
    """
    total = np.zeros(len(table), dtype=np.int64)
    found = np.flatnonzero(rules.is_named(table, frozenset({NAME})))
    if not len(found) or not all(name in table.columns for name in COLUMNS):
        return total
    value = table.columns["value"][found]
    found = found[(value >= 0) & (value <= _NS_MAX)]
    external = np.ascontiguousarray(table.columns["external"])
    op = _engine.match_ids(external, owners, external[found])
    known = op != NO_ROW
    op, ns = op[known], table.columns["value"][found[known]].astype(np.int64)
    total[op] = ns  # an op has one; of several somebody made up, the last counts
    timed = np.zeros(len(table), dtype=bool)
    timed[op] = True
    around = nearest(parent.copy(), timed)
    within = np.flatnonzero(timed & (around != NO_ROW))
    own: Array = total - _engine.sum_by(around[within], len(table), total[within])
    return own
