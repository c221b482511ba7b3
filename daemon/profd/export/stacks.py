"""Distinct call stacks of a trace and the time spent in them: what flame graphs and pprof draw."""

from __future__ import annotations

from typing import Final

import numpy as np

from profd import _engine
from profd.events import NO_CODE, NO_ROW
from profd.events.table import Array
from profd.export.spans import Spans
from profd.query.paths import Paths

# Deeper frames are charged to the one at this depth: a line per frame of an endless recursion, each as
# long as the recursion is deep, would grow with its square.
FRAMES_MAX: Final = 1024


def own_time(spans: Spans) -> tuple[Array, Array]:
    """(index of the enclosing span or NO_ROW, ns less direct children) of each span."""
    parent, own, _ = _engine.nest(
        np.ascontiguousarray(spans.start),
        np.ascontiguousarray(spans.end),
        np.ascontiguousarray(spans.thread),
        spans.on_cpu.view(np.uint8),
    )
    return parent, own


class Stacks:
    """Distinct stacks, in the order of their first spans: a path of calls on a track.

    Device work stands on the path that launched it, on the track of its device.
    """

    def __init__(self, spans: Spans, parent: Array) -> None:
        """`parent`: of each span, as of `own_time`. There is a span at least."""
        above = np.where(spans.on_cpu, parent, _index_of(spans.row, spans.linked))
        # Places are one more than codes, and NO_CODE is the first.
        self._paths, path = Paths.of_calls(["", *spans.names], spans.name - NO_CODE, above, FRAMES_MAX)
        self.of, first = _engine.group_rows([spans.thread.astype(np.int64), path])  # stack of each span
        self.thread = spans.thread[first]  # of each stack its track's number
        self._path = path[first]

    def __len__(self) -> int:
        return len(self._path)

    def frames(self, stacks: Array) -> list[list[int]]:
        """The names of each of these, outermost first: 0 for none, otherwise one more than its code."""
        return self._paths.codes(self._path[stacks])


def _index_of(rows: Array, wanted: Array) -> Array:
    """Where each wanted row number is in `rows` (ascending); NO_ROW where it is not."""
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return np.where(rows[place] == wanted, place, NO_ROW)
