"""The rule set `current` (docs/timeline.md): derived lines as XProf makes them today, for any number of streams."""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.derive.timeline.groups import NO_GROUP, Groups, find_groups, inherit
from profd.derive.timeline.lines import NAMES, DerivedEvent, DerivedLine, LineEvents, What
from profd.derive.timeline.places import Places, launches
from profd.derive.timeline.space import MISSING, NO_TEXT, Space, in_device_order, in_time_order
from profd.derive.timeline.streams import kernel_lines, module_line, op_lines
from profd.events.table import Array

_ROWS_PER_STREAM: Final = 7  # the stream and six derived lines
_NO_STREAMS: Final = ("_counters_", "CUPTI overhead")
_US: Final = 1_000_000  # ps
# Where XProf shows the lines of a stream, counted from the stream.
_OFFSETS: Final = {What.SCOPES: 1, What.OPS: 2, What.MODULES: 3, What.XLA_OPS: 4, What.SOURCES: 5, What.GRAPHS: 6}
_WHOLE_PLANE: Final = 3735928559  # and the rows of lines of whole planes: the first of the ids that XProf reserves
_PLANE_OFFSETS: Final = {
    What.STEPS: 0, What.LAUNCHES: 1, What.SCOPES: 2, What.OPS: 3, What.MODULES: 4, What.SOURCES: 7,
}  # fmt: skip


def derive(space: Space) -> tuple[list[DerivedLine], Groups]:
    """All derived lines without the empty ones, and the groups, which events of devices have inherited."""
    whole = _Whole(space)
    lines: list[DerivedLine] = []
    for plane in range(len(space.planes)):
        lines += whole.lines(plane)
    return [line for line in lines if len(line.events)], whole.groups


def stream_order(space: Space, places: Places, plane: int) -> list[int]:
    """The streams of a device as they are shown: those that compute, then by how much is on them."""
    streams = [line for line in space.lines_of(plane) if space.lines[line].name not in _NO_STREAMS]
    return sorted(streams, key=lambda line: ("Compute" not in space.lines[line].name, -places.count(line), line))


def stream_row(place: int) -> int:
    """Where XProf shows the stream that is number `place` (from 0) of its device."""
    return 1 + _ROWS_PER_STREAM * place


class _Whole:
    """What is found once for all planes and lines."""

    def __init__(self, space: Space) -> None:
        found = find_groups(space)
        self.groups = Groups(found.of.copy(), found.names, found.roots)
        self._space = space
        self._places = Places.of(space)
        self._launches = launches(space, self.groups.of)
        graph = space.number("cuda_graph_exec_id") != MISSING
        self._kernel = (space.text("kernel_details") != NO_TEXT) | graph
        self._compiled = space.text("hlo_module") != NO_TEXT
        self._roots: dict[int, list[tuple[int, int]]] = {}  # plane -> (group, the row it began with)
        for group, root in self.groups.roots.items():
            self._roots.setdefault(space.lines[int(space.line[root])].plane, []).append((group, root))

    def lines(self, plane: int) -> list[DerivedLine]:
        """Of a plane."""
        device = self._space.device_of_plane(plane)
        if device is None:
            return self._host(plane)
        kind, number = device
        rows = self._places.rows_of_plane(self._space, plane)
        if kind == "GPU":
            inherit(self._space, rows, self.groups.of)
        steps = _steps(self._space, plane, rows, self.groups)
        lines = self._gpu(plane) if kind == "GPU" else _tpu(self._space, plane, rows, self.groups)
        return [steps, *lines, _launch_stats(self._space, plane, self._launches.get(number, []), self.groups)]

    def _gpu(self, plane: int) -> list[DerivedLine]:
        space, lines = self._space, []
        for place, stream in enumerate(stream_order(space, self._places, plane)):
            rows = self._places.rows(stream)
            rows = rows[self._kernel[rows]]
            if not len(rows):
                continue
            kernels = in_device_order(space, rows)
            number = space.lines[stream].id
            lines += [
                _line(space, plane, what, events, f" - from #{number}", number, stream_row(place) + _OFFSETS[what])
                for what, events in kernel_lines(space, kernels, self.groups.of).items()
            ]
        return lines

    def _host(self, plane: int) -> list[DerivedLine]:
        """Modules of each line, and the roots of groups as steps."""
        space, lines = self._space, []
        for number in space.lines_of(plane):
            rows = self._places.rows(number)
            rows = rows[self._compiled[rows]]
            if len(rows):
                line, modules = space.lines[number], module_line(space, in_time_order(space, rows), self.groups.of)
                name = f"{line.name}-{NAMES[What.MODULES]}"
                lines.append(DerivedLine(space.planes[plane], What.MODULES, name, line.id, number, modules))
        steps = []
        for group, root in self._roots.get(plane, []):
            title, start, end = self.groups.name(group), int(space.start[root]), int(space.end[root])
            steps.append(DerivedEvent(title, start, end, group, args={"step_name": title}))
        return [*lines, _line(space, plane, What.STEPS, LineEvents.of(steps))]


def _line(
    space: Space, plane: int, what: What, events: LineEvents, suffix: str = "", stream: int | None = None, row: int = -1
) -> DerivedLine:
    row = _WHOLE_PLANE + _PLANE_OFFSETS[what] if row < 0 else row
    return DerivedLine(space.planes[plane], what, NAMES[what] + suffix, stream, row, events)


def _steps(space: Space, plane: int, rows: Array, groups: Groups) -> DerivedLine:
    order = in_device_order(space, rows)
    order = order[groups.of[order] != NO_GROUP]
    group = groups.of[order]
    first = _changes(group)
    ends = np.maximum.reduceat(space.end[order], first).tolist() if len(first) else []
    events = []
    for number, start, end in zip(group[first].tolist(), space.start[order[first]].tolist(), ends, strict=True):
        title = groups.name(number)
        events.append(DerivedEvent(title, start, end, number, args={"step_name": title}))
    return _line(space, plane, What.STEPS, LineEvents.of(events))


def _changes(column: Array) -> Array:
    """Where a row differs from the one before it, and the first."""
    changed = np.ones(len(column), dtype=np.bool_)
    changed[1:] = column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _tpu(space: Space, plane: int, rows: Array, groups: Groups) -> list[DerivedLine]:
    waiting = [line for line in space.lines_of(plane) if space.lines[line].name.startswith("Async ")]
    told = (space.text("tf_op")[rows] != NO_TEXT) | (space.text("source")[rows] != NO_TEXT)
    kept = rows[told & np.isin(space.number("_a")[rows], (MISSING, 0)) & ~np.isin(space.line[rows], waiting)]
    lines = op_lines(space, in_device_order(space, kept), groups.of)
    return [_line(space, plane, what, events) for what, events in lines.items()]


def _launch_stats(space: Space, plane: int, launched: list[Array], groups: Groups) -> DerivedLine:
    """How long launching took, for each group."""
    events = []
    for own in launched:
        group, took = int(groups.of[own[0]]), space.end[own] - space.start[own]
        title = f"Launch Stats for {groups.name(group)}"
        event = DerivedEvent(title, int(space.start[own].min()), int(space.end[own].max()), group)
        event.args = {
            "num_launches": len(own),
            "max_launch_time_us": int(took.max()) / _US,
            "avg_launch_time_us": int(took.sum()) / len(own) / _US,
        }
        events.append(event)
    return _line(space, plane, What.LAUNCHES, LineEvents.of(events))
