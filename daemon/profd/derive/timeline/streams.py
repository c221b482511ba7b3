"""Modules, scopes, operators, graphs and sources, from the kernels of a stream or the ops of a TPU."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.timeline.lines import LineEvents, What
from profd.derive.timeline.merge import Label, Puts, merge
from profd.derive.timeline.names import parse_op
from profd.derive.timeline.space import MISSING, NO_TEXT, Space
from profd.derive.timeline.symbols import Symbol
from profd.events.table import Array
from profd.limits import XSPACE_LEVELS_MAX

_DELIMITER: Final = "::"
parse: Final = lru_cache(1 << 14)(parse_op)
Levels = list[tuple[str, Label]]


def kernel_lines(space: Space, kernels: Array, group: Array) -> dict[What, LineEvents]:
    """Of kernels of one stream in the order of time; `group` is of all events."""
    return _Kernels(space, kernels).lines(group[kernels])


def op_lines(space: Space, ops: Array, group: Array) -> dict[What, LineEvents]:
    """Of ops of a TPU in the order of time, which name their operator and source themselves."""
    scopes, operators, sources = Puts(len(ops)), Puts(len(ops), after=0), Puts(len(ops))
    framework, source = space.text("tf_op")[ops], space.text("source")[ops]
    _put_operators(np.flatnonzero(framework != NO_TEXT), framework, space.words, scopes, operators)
    _put_texts(np.flatnonzero(source != NO_TEXT), source, space.words, sources)
    columns = (space.start[ops], space.end[ops], group[ops])
    merged = merge((scopes, operators, sources), *columns, close_gaps=False, close_last=True)
    kinds = (What.SCOPES, What.OPS, What.SOURCES)
    return {what: line.spans.in_order() for what, line in zip(kinds, merged, strict=True)}


def module_line(space: Space, rows: Array, group: Array) -> LineEvents:
    """The modules of compiled code on a thread of a host."""
    modules = Puts(len(rows))
    _put_texts(np.arange(len(rows)), space.text("hlo_module")[rows], space.words, modules)
    columns = (space.start[rows], space.end[rows], group[rows])
    (merged,) = merge((modules,), *columns, close_gaps=False, close_last=False)
    return merged.spans.in_order()


class _Kernels:
    """The kernels of a stream, told apart by module, program and XLA op."""

    def __init__(self, space: Space, kernels: Array) -> None:
        self._space = space
        texts = ("hlo_module", "hlo_op", "tf_op")
        self._module, self._op, self._framework = (space.text(key)[kernels] for key in texts)
        numbers = ("program_id", "scope_range_id", "cuda_graph_id")
        self._program, self._scope, self._graph = (space.number(key)[kernels] for key in numbers)
        self._correlation = space.correlation[kernels]
        self._span = space.start[kernels], space.end[kernels]
        self._of_xla = np.flatnonzero(self._op != NO_TEXT)
        columns = (self._module, self._program, self._op)
        self._which, first = _engine.group_rows([np.ascontiguousarray(column[self._of_xla]) for column in columns])
        self._xla_ops = [self._xla_op(row) for row in self._of_xla[first].tolist()]

    def lines(self, group: Array) -> dict[What, LineEvents]:
        size = len(group)
        modules, sources = Puts(size), Puts(size)
        xla_ops, graphs, scopes = (Puts(size, after=0) for _ in range(3))
        ops = Puts(size, after=3)
        self._put_modules(modules)
        self._put_xla_ops(xla_ops)
        launched = self._put_graphs(graphs)
        self._put_framework(scopes, ops)
        self._put_sources(sources)
        lines = (modules, xla_ops, graphs, scopes, ops, sources)
        merged = merge(lines, *self._span, group, close_gaps=True, close_last=False)
        for line in (merged[1], merged[2]):
            self._mark_graphs(line.spans, line.innermost, launched)
        kinds = (What.MODULES, What.XLA_OPS, What.GRAPHS, What.SCOPES, What.OPS, What.SOURCES)
        return {what: line.spans.in_order() for what, line in zip(kinds, merged, strict=True)}

    def _xla_op(self, row: int) -> tuple[Levels, Symbol]:
        """The name of an XLA op on each level, known by its program or module, and its origin."""
        words, module, program = self._space.words, int(self._module[row]), int(self._program[row])
        owner = str(program) if program != MISSING else "" if module == NO_TEXT else words[module]
        names = words[int(self._op[row])].split(_DELIMITER)[:XSPACE_LEVELS_MAX]
        levels = [(f"{owner}/{name}", (name, f"{owner}/{name}")) for name in names]
        return levels, self._space.symbols.of_program(program, names[-1])

    def _put_modules(self, modules: Puts) -> None:
        at = np.flatnonzero(self._module != NO_TEXT)
        if not len(at):
            return
        columns = (self._module, self._program)
        which, first = _engine.group_rows([np.ascontiguousarray(column[at]) for column in columns])
        told = [(int(self._module[row]), int(self._program[row])) for row in at[first].tolist()]
        words = self._space.words
        names = [words[module] if program == MISSING else f"{words[module]}({program})" for module, program in told]
        modules.put(at, which, [_alone(name) for name in names])
        modules.tell_apart(self._scoped(at), self._scope, lambda scope: self._chain(scope)[:1])

    def _put_xla_ops(self, xla_ops: Puts) -> None:
        xla_ops.put(self._of_xla, self._which, [levels for levels, _ in self._xla_ops])
        xla_ops.tell_apart(self._scoped(self._of_xla), self._scope, self._chain)

    def _scoped(self, rows: Array) -> Array:
        found: Array = rows[self._scope[rows] != MISSING]
        return found

    def _chain(self, scope: int) -> list[int]:
        """From the root to a scope; a cycle is left where it begins to repeat, depths where no trace has any."""
        parents = self._space.scope_parents
        chain, seen = [scope], {scope}
        while len(chain) < XSPACE_LEVELS_MAX and (above := parents.get(chain[-1])) is not None and above not in seen:
            chain.append(above)
            seen.add(above)
        return chain[::-1]

    def _put_graphs(self, graphs: Puts) -> Array:
        """Each launch of a graph is one event. Returns the rows that are of graphs."""
        graph = self._graph[self._of_xla]
        launched: Array = self._of_xla[(graph != MISSING) & (graph != 0)]
        if not len(launched):
            return launched
        distinct, which = np.unique(self._graph[launched], return_inverse=True)
        graphs.put(launched, which, [_alone(f"Command Buffer {graph}") for graph in distinct.tolist()])
        told = launched[self._correlation[launched] != MISSING]
        graphs.tell_apart(told, self._correlation, lambda correlation: [correlation])
        return launched

    def _mark_graphs(self, spans: LineEvents, innermost: Array, launched: Array) -> None:
        """Which graph, and by which call, of the first kernel that an event has of one."""
        for row in launched.tolist():
            args = spans.args.setdefault(int(innermost[row]), {})
            args.setdefault("cuda_graph_id", int(self._graph[row]))
            if self._correlation[row] != MISSING:
                args.setdefault("correlation_id", int(self._correlation[row]))

    def _put_framework(self, scopes: Puts, ops: Puts) -> None:
        """Of kernels compiled by XLA as their program tells, of others as they say themselves."""
        own = np.flatnonzero((self._op == NO_TEXT) & (self._framework != NO_TEXT))
        _put_operators(own, self._framework, self._space.words, scopes, ops)
        names = [symbol.framework for _, symbol in self._xla_ops]
        at, which = self._told(names)
        _put_operators(at, which, names, scopes, ops)

    def _put_sources(self, sources: Puts) -> None:
        places = [symbol.source for _, symbol in self._xla_ops]
        at, which = self._told(places)
        _put_texts(at, which, places, sources)

    def _told(self, texts: list[str]) -> tuple[Array, Array]:
        """(rows whose XLA op has a text, which of the texts each row has)."""
        which = np.full(len(self._op), NO_TEXT, dtype=np.int64)
        which[self._of_xla] = self._which
        has = np.array([bool(text) for text in texts], dtype=np.bool_)
        return self._of_xla[has[self._which]], which


def _put_operators(at: Array, which: Array, names: list[str], scopes: Puts, ops: Puts) -> None:
    """Operators by their full names, on the lines of scopes and operators. `which` is of all rows."""
    if not len(at):
        return
    distinct, place = np.unique(which[at], return_inverse=True)
    parsed = [parse(names[code]) for code in distinct.tolist()]
    scopes.put(at, place, [[(scope, (scope, "")) for scope in op.scopes] for op in parsed])
    ops.put(at, place, [[(op.full_name, (op.shown, op.long_name))] for op in parsed])


def _put_texts(at: Array, which: Array, texts: list[str], line: Puts) -> None:
    if not len(at):
        return
    distinct, place = np.unique(which[at], return_inverse=True)
    line.put(at, place, [_alone(texts[code]) for code in distinct.tolist()])


def _alone(name: str) -> Levels:
    return [(name, (name, ""))]
