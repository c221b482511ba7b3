"""Distinct call stacks of a trace and the time spent in them: what flame graphs and pprof draw."""

from __future__ import annotations

from typing import Final

import numpy as np

from profd import _engine
from profd.events import NO_ROW
from profd.events.table import Array
from profd.export.spans import Spans

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
    """Distinct stacks as a tree: each is a frame on top of another stack.

    The lowest frame is the thread. Device work stands on the stack that launched
    it, under a root of its own device track.
    """

    def __init__(self, spans: Spans, parent: Array) -> None:
        self.of = np.full(len(spans.row), NO_ROW, dtype=np.int64)  # stack of each span
        self.name: list[int] = []  # of a stack: code of its innermost frame, or -2 - thread for a root
        self._below: list[int] = []  # of a stack: the stack under it, NO_ROW for a root
        self._depth: list[int] = []
        self._known: dict[tuple[int, int], int] = {}
        self._place(spans, parent)

    def _place(self, spans: Spans, parent: Array) -> None:
        launch = _index_of(spans.row, spans.linked)
        cpu = np.flatnonzero(spans.on_cpu)
        # Level by level: a parent may be the later row among equal starts.
        for level in _levels(parent, cpu):
            self._add(level, parent[level], spans)
        device = np.flatnonzero(~spans.on_cpu)
        thread, name = spans.thread.tolist(), spans.name.tolist()
        copies: dict[tuple[int, int], int] = {}  # (device track, stack of a launch) -> the same stack on the track
        for at in device.tolist():
            cause = int(self.of[launch[at]]) if launch[at] != NO_ROW else NO_ROW
            below = copies.get((thread[at], cause))
            if below is None:
                below = self._root(thread[at])
                for frame in self.frames(cause):
                    below = self._on(below, frame)
                copies[thread[at], cause] = below
            self.of[at] = self._on(below, name[at])

    def _add(self, rows: Array, parent: Array, spans: Spans) -> None:
        below = np.where(parent == NO_ROW, -2 - spans.thread[rows].astype(np.int64), self.of[parent])
        group, first = _engine.group_rows([below, spans.name[rows].astype(np.int64)])
        numbers = []
        for at in first.tolist():
            under = int(below[at])
            under = self._root(-2 - under) if under <= -2 else under
            numbers.append(self._on(under, int(spans.name[rows[at]])))
        self.of[rows] = np.array(numbers, dtype=np.int64)[group]

    def _root(self, thread: int) -> int:
        return self._stack(NO_ROW, -2 - thread)

    def _on(self, below: int, name: int) -> int:
        return below if self._depth[below] >= FRAMES_MAX else self._stack(below, name)

    def _stack(self, below: int, name: int) -> int:
        number = self._known.setdefault((below, name), len(self.name))
        if number == len(self.name):
            self.name.append(name)
            self._below.append(below)
            self._depth.append(0 if below == NO_ROW else self._depth[below] + 1)
        return number

    def frames(self, stack: int) -> list[int]:
        """Codes of the frames of a stack without its root, outermost first."""
        frames = []
        while stack != NO_ROW and self._below[stack] != NO_ROW:
            frames.append(self.name[stack])
            stack = self._below[stack]
        return frames[::-1]

    def thread(self, stack: int) -> int:
        """The track number of the thread it lies on."""
        while self._below[stack] != NO_ROW:
            stack = self._below[stack]
        return -2 - self.name[stack]


def _index_of(rows: Array, wanted: Array) -> Array:
    """Where each wanted row number is in `rows` (ascending); NO_ROW where it is not."""
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return np.where(rows[place] == wanted, place, NO_ROW)


def _levels(parent: Array, rows: Array) -> list[Array]:
    """The rows by depth, roots first."""
    order = rows[_engine.argsort(np.ascontiguousarray(parent[rows]))]
    by_parent = parent[order]
    level = order[: int(np.searchsorted(by_parent, 0))]
    levels = []
    while len(level):
        levels.append(level)
        first = np.searchsorted(by_parent, level, side="left")
        count = np.searchsorted(by_parent, level, side="right") - first
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        level = order[np.repeat(first, count) + offset]
    return levels
