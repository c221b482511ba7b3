"""The rule set `classic` (docs/timeline.md): TensorFlow's derived_timeline.cc of 2021, rule for rule.

All streams of a GPU are one sequence of events. Neighbours with one name and group
are one event until a kernel comes that was part of it already: then the operator
runs again. Lines depend on one another: where a step ends all lines begin anew,
where a module ends its scopes and ops do, where a scope ends its operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from profd.derive.timeline.groups import NO_GROUP, Groups, find_groups
from profd.derive.timeline.lines import DerivedEvent, DerivedLine, LineEvents, What
from profd.derive.timeline.names import FrameworkOp
from profd.derive.timeline.places import Places, launches
from profd.derive.timeline.space import NO_TEXT, Space, in_time_order
from profd.derive.timeline.streams import parse
from profd.events.table import Array
from profd.limits import XSPACE_LEVELS_MAX

NAMES: Final = {
    What.STEPS: "Steps",
    What.LAUNCHES: "Launch Stats",
    What.SCOPES: "TensorFlow Name Scope",
    What.OPS: "TensorFlow Ops",
    What.MODULES: "XLA Modules",
    What.XLA_OPS: "XLA Ops",
    What.SOURCES: "Source code",
}
_ROWS: Final = {what: 0xDEADBEEF + offset for what, offset in zip(NAMES, (0, 1, 2, 3, 4, 5, 7), strict=True)}
_NS: Final = 1000
_US: Final = 1_000_000  # ps
Span = tuple[int, int]


@dataclass(slots=True)
class _Open:
    event: DerivedEvent
    key: str
    group: int
    kernels: set[str] = field(default_factory=set)  # what the event was made of; empty: nothing tells invocations apart


class ClassicLine:
    """A line under construction, fed in the order of time."""

    def __init__(self, dependents: Sequence[ClassicLine] = ()) -> None:
        self.events: list[DerivedEvent] = []
        self._dependents = dependents
        self._open: list[_Open | None] = []

    def put(
        self, names: Sequence[str], span: Span, group: int | None, *, by_group: bool = True, kernel: str = ""
    ) -> None:
        """One span on each level, outermost first. Levels below the last name stay as they are.

        `by_group`: spans of different groups are different events. `kernel`: what ran; "": anything goes on.
        """
        for level, name in enumerate(names):
            self._put(level, name, span, group, NO_GROUP if group is None or not by_group else group, kernel)

    def _put(self, level: int, name: str, span: Span, group: int | None, key_group: int, kernel: str) -> None:
        start, end = span
        if level == len(self._open):
            self._open.append(None)
        last = self._open[level]
        if last is not None and (last.key, last.group) == (name, key_group) and kernel not in last.kernels:
            last.event.end = end  # also where an earlier part lasted longer
        else:
            self.reset(level)
            last = self._open[level] = _Open(DerivedEvent(name, start, end, group), name, key_group)
            self.events.append(last.event)
        if kernel:
            last.kernels.add(kernel)

    def reset(self, level: int = 0) -> None:
        """End the events from a level on; with the outermost, those of dependent lines."""
        self._open[level:] = [None] * (len(self._open) - level)
        if level == 0:
            for line in self._dependents:
                line.reset()

    @property
    def latest(self) -> DerivedEvent:
        """The event of the outermost level that the last `put` began or went on with."""
        last = self._open[0]
        if last is None:
            raise LookupError("the line has no open event")
        return last.event


def derive_classic(space: Space, *, step_info_only: bool = False) -> tuple[list[DerivedLine], Groups]:
    """The lines of all GPUs without the empty ones. `step_info_only`: steps and launches alone."""
    groups = find_groups(space)
    lines: list[DerivedLine] = []
    places, launched = Places.of(space), launches(space, groups.of)
    planes = [plane for plane in range(len(space.planes)) if (space.device_of_plane(plane) or ("",))[0] == "GPU"]
    for number, plane in enumerate(planes):
        built = _annotations(space, places.rows_of_plane(space, plane), groups, step_info_only)
        built[What.LAUNCHES] = _launches(space, launched.get(number, []), groups)
        lines += [
            DerivedLine(space.planes[plane], what, NAMES[what], None, _ROWS[what], LineEvents.of(built[what]))
            for what in NAMES
            if built.get(what)
        ]
    return lines, groups


def _annotations(space: Space, rows: Array, groups: Groups, step_info_only: bool) -> dict[What, list[DerivedEvent]]:
    """`DeriveEventsFromAnnotations`: from the events of all lines of a plane, merged."""
    ops = ClassicLine()
    scopes = ClassicLine([ops])
    xla_ops = ClassicLine()
    modules = ClassicLine([scopes, xla_ops])
    steps = ClassicLine([modules])
    sources = ClassicLine()
    words = space.words
    rows = in_time_order(space, rows)
    columns = [space.text(key)[rows].tolist() for key in ("kernel_details", "hlo_module", "hlo_op", "tf_op")]
    for start, end, number, name, details, module, op, framework in zip(
        *(column[rows].tolist() for column in (space.start, space.end, groups.of, space.name)), *columns, strict=True
    ):
        span, group = (start, end), None if number == NO_GROUP else number
        if group is not None:
            steps.put([str(group)], span, group)
            if group in groups.names:
                steps.latest.args.setdefault("step_name", groups.names[group])
        if step_info_only or details == NO_TEXT:
            continue  # copies and allocations are no kernels
        if module != NO_TEXT:
            modules.put([words[module]], span, group, by_group=False)
        if op != NO_TEXT:
            levels = words[op].split("::")[:XSPACE_LEVELS_MAX]
            xla_ops.put(levels, span, group)
            symbol = space.symbols.of_module(words[module] if module != NO_TEXT else "", levels[-1])
            if symbol.framework:
                _put_framework(parse(symbol.framework), span, group, words[name], scopes, ops)
            if symbol.source:
                sources.put([symbol.source], span, group, by_group=False)
        elif framework != NO_TEXT:
            _put_framework(parse(words[framework]), span, group, words[name], scopes, ops)
    return {
        What.STEPS: steps.events,
        What.MODULES: modules.events,
        What.SCOPES: scopes.events,
        What.OPS: ops.events,
        What.XLA_OPS: xla_ops.events,
        What.SOURCES: sources.events,
    }


def _put_framework(
    op: FrameworkOp, span: Span, group: int | None, kernel: str, scopes: ClassicLine, ops: ClassicLine
) -> None:
    """`ProcessTfOpEvent`: operators are told by their full names and shown by their types."""
    scopes.put(op.scopes, span, group, kernel=kernel)
    ops.put([op.full_name], span, group, kernel=kernel)
    ops.latest.name, ops.latest.long_name = op.shown, op.full_name


def _launches(space: Space, launched: list[Array], groups: Groups) -> list[DerivedEvent]:
    """`DeriveEventsFromHostTrace`: of groups that have a name. Devices are counted among the GPUs of the trace."""
    of = [(rows, int(groups.of[rows[0]])) for rows in launched]
    return [_launch_stats(space, rows, group, groups.names[group]) for rows, group in of if group in groups.names]


def _launch_stats(space: Space, rows: Array, group: int, title: str) -> DerivedEvent:
    took = space.end[rows] - space.start[rows]
    start, end = int(space.start[rows].min()), int(space.end[rows].max())
    begin = start - start % _NS  # it is set in whole ns, and lasts as long as the launches
    event = DerivedEvent(f"Launch Stats for {title}", begin, begin + end - start, group)
    event.args = {
        "num_launches": len(rows),
        "max_launch_time_us": int(took.max()) / _US,
        "avg_launch_time_us": int(took.sum()) // len(rows) / _US,
    }
    return event
