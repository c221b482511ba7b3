"""The rule set `current` (docs/timeline.md): derived lines as XProf makes them today, for any number of streams."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import numpy as np

from profd.derive.timeline.groups import NO_GROUP, Groups, find_groups, inherit
from profd.derive.timeline.merge import DerivedEvent, LineBuilder
from profd.derive.timeline.names import FrameworkOp, parse_op
from profd.derive.timeline.space import MISSING, NO_TEXT, Space, in_device_order, in_time_order
from profd.derive.timeline.symbols import Symbol
from profd.events.table import Array
from profd.limits import XSPACE_LEVELS_MAX

_DELIMITER: Final = "::"
_ROWS_PER_STREAM: Final = 7  # the stream and six derived lines
_NO_STREAMS: Final = ("_counters_", "CUPTI overhead")
_US: Final = 1_000_000  # ps
parse: Final = lru_cache(1 << 14)(parse_op)


class What(StrEnum):
    """The kinds of derived lines."""

    STEPS = "steps"
    LAUNCHES = "launches"
    SCOPES = "scopes"
    OPS = "ops"
    MODULES = "modules"
    XLA_OPS = "xla-ops"
    GRAPHS = "graphs"
    SOURCES = "sources"


NAMES: Final = {
    What.STEPS: "Steps",
    What.LAUNCHES: "Launch Stats",
    What.SCOPES: "Framework Name Scope",
    What.OPS: "Framework Ops",
    What.MODULES: "XLA Modules",
    What.XLA_OPS: "XLA Ops",
    What.GRAPHS: "Command Buffers",
    What.SOURCES: "Source code",
}
# Where XProf shows the lines of a stream, counted from the stream.
_OFFSETS: Final = {What.SCOPES: 1, What.OPS: 2, What.MODULES: 3, What.XLA_OPS: 4, What.SOURCES: 5, What.GRAPHS: 6}
_WHOLE_PLANE: Final = 3735928559  # and the rows of lines of whole planes: the first of the ids that XProf reserves
_PLANE_OFFSETS: Final = {
    What.STEPS: 0, What.LAUNCHES: 1, What.SCOPES: 2, What.OPS: 3, What.MODULES: 4, What.SOURCES: 7,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DerivedLine:
    """A line and where it comes from. Events by start, the longest first."""

    plane: str
    what: What
    name: str
    stream: int | None  # id of the line it was derived from, None where from all of the plane
    row: int  # where XProf shows it
    events: list[DerivedEvent]


def derive(space: Space) -> tuple[list[DerivedLine], Groups]:
    """All derived lines without the empty ones, and the groups, which events of devices have inherited."""
    groups = find_groups(space)
    lines: list[DerivedLine] = []
    of = groups.of
    for plane in range(len(space.planes)):
        rows = np.flatnonzero(np.isin(space.line, space.lines_of(plane)))
        device = space.device_of_plane(plane)
        if device is None:
            lines += _host(space, plane, rows, groups)
            continue
        if device[0] == "GPU":
            of = inherit(space, rows, of)
        groups = Groups(of, groups.names, groups.roots)
        lines += _gpu(space, plane, rows, groups) if device[0] == "GPU" else _tpu(space, plane, rows, groups)
        lines += _launches(space, plane, device[1], groups)
    return [line for line in lines if line.events], groups


def stream_order(space: Space, plane: int) -> list[int]:
    """The streams of a device as they are shown: those that compute, then by how much is on them."""
    counts = np.bincount(space.line, minlength=len(space.lines))
    streams = [line for line in space.lines_of(plane) if space.lines[line].name not in _NO_STREAMS]
    return sorted(streams, key=lambda line: ("Compute" not in space.lines[line].name, -int(counts[line]), line))


def stream_row(place: int) -> int:
    """Where XProf shows the stream that is number `place` (from 0) of its device."""
    return 1 + _ROWS_PER_STREAM * place


def _gpu(space: Space, plane: int, rows: Array, groups: Groups) -> list[DerivedLine]:
    lines = [_steps(space, plane, rows, groups)]
    kernel = (space.text("kernel_details") != NO_TEXT) | (space.number("cuda_graph_exec_id") != MISSING)
    for place, stream in enumerate(stream_order(space, plane)):
        kernels = rows[(space.line[rows] == stream) & kernel[rows]]
        built = _Stream(space, groups.of).build(in_device_order(space, kernels))
        number = space.lines[stream].id
        lines += [
            _line(space, plane, what, events, f" - from #{number}", number, stream_row(place) + _OFFSETS[what])
            for what, events in built.items()
        ]
    return lines


def _line(
    space: Space,
    plane: int,
    what: What,
    events: list[DerivedEvent],
    suffix: str = "",
    stream: int | None = None,
    row: int = -1,
) -> DerivedLine:
    events = sorted(events, key=lambda event: (event.start, -event.end))
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
    return _line(space, plane, What.STEPS, events)


def _changes(*columns: Array) -> Array:
    """Where a row differs from the one before it in any column, and the first."""
    changed = np.ones(len(columns[0]), dtype=np.bool_)
    changed[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(changed)


def _spans(space: Space, rows: Array, group: Array) -> Any:
    return zip(space.start[rows].tolist(), space.end[rows].tolist(), group[rows].tolist(), strict=True)


class _Stream:
    """The derived lines of one stream."""

    def __init__(self, space: Space, group: Array) -> None:
        self._space = space
        self._group = group
        self.ops = LineBuilder()
        self.scopes = LineBuilder([self.ops])
        self.xla_ops = LineBuilder()
        self.graphs = LineBuilder()
        self.sources = LineBuilder()
        self.modules = LineBuilder([self.scopes, self.xla_ops, self.graphs])
        self._chains: dict[int, list[int]] = {}
        self._ops: dict[tuple[int, int, int], tuple[list[tuple[str, str]], Symbol]] = {}

    def build(self, kernels: Array) -> dict[What, list[DerivedEvent]]:
        """From kernels in the order of time."""
        space, words = self._space, self._space.words
        columns = [space.text(key)[kernels].tolist() for key in ("hlo_op", "tf_op", "hlo_module")]
        keys = ("program_id", "scope_range_id", "cuda_graph_id")
        columns += [space.number(key)[kernels].tolist() for key in keys]
        columns += [space.correlation[kernels].tolist(), self._module_ends(kernels)]
        for (start, end, group), op, framework, module, program, scope, graph, correlation, module_end in zip(
            _spans(space, kernels, self._group), *columns, strict=True
        ):
            span, within = (start, end), None if group == NO_GROUP else group
            chain = self._chain(scope) if scope != MISSING else None
            if module_end != MISSING and module != NO_TEXT:
                name = words[module] if program == MISSING else f"{words[module]}({program})"
                self.modules.put([(name, name)], (start, module_end), within, chain and chain[:1])
            if op != NO_TEXT:
                levels, symbol = self._op(module, program, op)
                scopes = chain if chain is not None and len(chain) == len(levels) else None
                self.xla_ops.put(levels, span, within, scopes)
                if graph not in (MISSING, 0):
                    self._graph(graph, correlation, span, within)
                if symbol.framework:
                    put_framework(parse(symbol.framework), span, within, self.scopes, self.ops)
                if symbol.source:
                    self.sources.put([(symbol.source, symbol.source)], span, within)
            elif framework != NO_TEXT:
                put_framework(parse(words[framework]), span, within, self.scopes, self.ops)
        return {
            What.SCOPES: self.scopes.events,
            What.OPS: self.ops.events,
            What.MODULES: self.modules.events,
            What.XLA_OPS: self.xla_ops.events,
            What.GRAPHS: self.graphs.events,
            What.SOURCES: self.sources.events,
        }

    def _module_ends(self, kernels: Array) -> list[int]:
        """Where what neighbours of one module last together ends, told by the first of them; MISSING by the others."""
        space = self._space
        numbers = [space.number(key)[kernels] for key in ("program_id", "scope_range_id")]
        first = _changes(space.text("hlo_module")[kernels], *numbers, self._group[kernels])
        ends = np.full(len(kernels), MISSING, dtype=np.int64)
        if len(first):
            ends[first] = np.maximum.reduceat(space.end[kernels], first)
        found: list[int] = ends.tolist()
        return found

    def _chain(self, scope: int) -> list[int]:
        chain = self._chains.get(scope)
        if chain is None:
            chain = self._chains[scope] = _scope_chain(scope, self._space.scope_parents)
        return chain

    def _op(self, module: int, program: int, op: int) -> tuple[list[tuple[str, str]], Symbol]:
        """What an XLA op is called on each level (key, name shown), and what its innermost one was compiled from."""
        known = self._ops.get((module, program, op))
        if known is None:
            owner = str(program) if program != MISSING else "" if module == NO_TEXT else self._space.words[module]
            names = self._space.words[op].split(_DELIMITER)[:XSPACE_LEVELS_MAX]
            levels = [(f"{owner}/{name}", name) for name in names]
            known = self._ops[module, program, op] = levels, self._space.symbols.of_program(program, names[-1])
        return known

    def _graph(self, graph: int, correlation: int, span: tuple[int, int], group: int | None) -> None:
        """Each launch of a graph is one event."""
        name = f"Command Buffer {graph}"
        self.graphs.put([(name, name)], span, group, None if correlation == MISSING else [correlation])
        for event in (self.xla_ops.innermost, self.graphs.innermost):
            event.args.setdefault("cuda_graph_id", graph)
            if correlation != MISSING:
                event.args.setdefault("correlation_id", correlation)


def put_framework(
    op: FrameworkOp, span: tuple[int, int], group: int | None, scopes: LineBuilder, ops: LineBuilder
) -> None:
    """An operator on the lines of scopes and operators."""
    scopes.put([(scope, scope) for scope in op.scopes], span, group)
    ops.put([(op.full_name, op.shown)], span, group)
    ops.innermost.long_name = op.long_name


def _scope_chain(scope: int, parents: dict[int, int]) -> list[int]:
    """From the root to a scope; a cycle is left where it begins to repeat, depths where no trace has any."""
    chain, seen = [scope], {scope}
    while len(chain) < XSPACE_LEVELS_MAX and (above := parents.get(chain[-1])) is not None and above not in seen:
        chain.append(above)
        seen.add(above)
    return chain[::-1]


def _tpu(space: Space, plane: int, rows: Array, groups: Groups) -> list[DerivedLine]:
    ops = LineBuilder(close_gaps=False)
    scopes = LineBuilder([ops], close_gaps=False)
    sources = LineBuilder(close_gaps=False)
    framework, source, asynchronous = space.text("tf_op"), space.text("source"), space.number("_a")
    waiting = [line for line in space.lines_of(plane) if space.lines[line].name.startswith("Async ")]
    told = (framework[rows] != NO_TEXT) | (source[rows] != NO_TEXT)
    kept = rows[told & np.isin(asynchronous[rows], (MISSING, 0)) & ~np.isin(space.line[rows], waiting)]
    order = in_device_order(space, kept)
    for (start, end, group), op, place in zip(
        _spans(space, order, groups.of), framework[order].tolist(), source[order].tolist(), strict=True
    ):
        within = None if group == NO_GROUP else group
        if op != NO_TEXT:
            put_framework(parse(space.words[op]), (start, end), within, scopes, ops)
        if place != NO_TEXT:
            sources.put([(space.words[place], space.words[place])], (start, end), within)
    scopes.close()
    return [
        _steps(space, plane, rows, groups),
        _line(space, plane, What.SCOPES, scopes.events),
        _line(space, plane, What.OPS, ops.events),
        _line(space, plane, What.SOURCES, sources.events),
    ]


def _host(space: Space, plane: int, rows: Array, groups: Groups) -> list[DerivedLine]:
    """Modules of each line, and the roots of groups as steps."""
    lines = []
    module = space.text("hlo_module")
    compiled = rows[module[rows] != NO_TEXT]
    for number in sorted(set(space.line[compiled].tolist())):
        modules = LineBuilder(close_gaps=False)
        order = in_time_order(space, compiled[space.line[compiled] == number])
        for (start, end, group), text in zip(_spans(space, order, groups.of), module[order].tolist(), strict=True):
            name = space.words[text]
            modules.put([(name, name)], (start, end), None if group == NO_GROUP else group)
        line = space.lines[number]
        name = f"{line.name}-{NAMES[What.MODULES]}"
        lines.append(DerivedLine(space.planes[plane], What.MODULES, name, line.id, number, modules.events))
    steps = []
    inside = set(space.lines_of(plane))
    for group, root in groups.roots.items():
        if int(space.line[root]) in inside:
            title = groups.name(group)
            steps.append(
                DerivedEvent(title, int(space.start[root]), int(space.end[root]), group, args={"step_name": title})
            )
    return [*lines, _line(space, plane, What.STEPS, steps)]


def _launches(space: Space, plane: int, device: int, groups: Groups) -> list[DerivedLine]:
    """How long launching took, for each group: calls named cu… are mostly no launches and do not count."""
    called = np.array([not word.startswith("cu") for word in space.words], dtype=np.bool_)
    calls = (space.number("device_id") == device) & (space.correlation != MISSING) & (groups.of != NO_GROUP)
    rows = np.flatnonzero(calls & ~space.on_device())
    rows = rows[called[space.name[rows]]]
    rows = rows[np.argsort(groups.of[rows], kind="stable")]
    first = _changes(groups.of[rows])
    events = []
    for own in np.split(rows, first[1:]) if len(first) else []:
        group, took = int(groups.of[own[0]]), space.end[own] - space.start[own]
        title = f"Launch Stats for {groups.name(group)}"
        event = DerivedEvent(title, int(space.start[own].min()), int(space.end[own].max()), group)
        event.args = {
            "num_launches": len(own),
            "max_launch_time_us": int(took.max()) / _US,
            "avg_launch_time_us": int(took.sum()) / len(own) / _US,
        }
        events.append(event)
    return [_line(space, plane, What.LAUNCHES, events)]
