"""A trace of PyTorch as the derivation of lines reads it: device work named by the modules and operators it comes from.

Kernels carry no scopes there. Their launches do: what encloses a launch on its thread
says which module and which operator ran, and in which step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd import _engine
from profd.derive.autograd import AUTOGRAD_COLUMNS, FLOW_CATEGORIES, find_links
from profd.derive.timeline.space import MISSING, NO_TEXT, Line, Space
from profd.events import NO_END, NO_ROW, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.grouping import by_module
from profd.query.steps import StepMarks
from profd.query.view import nest
from profd.query.whole import whole
from profd.segments.reader import TraceReader

_COLUMNS: Final = (
    *("name", "kind", "cat", *rules.ASYNC_COLUMNS, "start", "end", "thread", "device_type", "device", "linked"),
    *("stack", "module", *AUTOGRAD_COLUMNS),
)
_WORK: Final = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
_KERNEL: Final = "kernel"


def torch_space(reader: TraceReader) -> Space | None:
    """The device work of a trace; None if it has none. Exhausted if it is too large for a worker."""
    table = whole(reader, list(dict.fromkeys(_COLUMNS)))
    kinds = table.column("kind")
    on_device = ~rules.is_cpu(table.column("device_type")) & rules.is_kind(kinds, *_WORK)
    work = np.flatnonzero(on_device & (table.column("thread") != NO_ROW))
    if not len(work):
        return None
    return _Reading(reader, table, work).space()


class _Reading:
    def __init__(self, reader: TraceReader, table: EventTable, work: Array) -> None:
        self._reader = reader
        self._table = table
        self._work = work
        self._words = Dictionary()
        launch = table.column("linked")[work]
        self._launch = np.where((launch >= 0) & (launch < len(table)), launch, NO_ROW)

    def space(self) -> Space:
        table, work = self._table, self._work
        zero = self._reader.meta.start_ns or 0
        start, end = table.columns["start"][work] - zero, table.column("end")[work]
        end = np.where(end == NO_END, start, np.maximum(end - zero, start))
        planes, lines, line = self._places()
        group, step = self._steps()
        kernel = np.where(table.column("kind")[work] == Kind.KERNEL, self._words.code(_KERNEL), NO_TEXT)
        names = rules.demangled(rules.names_of(table))
        return Space(
            planes=planes,
            lines=lines,
            start=start * 1000,
            end=end * 1000,
            line=line,
            name=self._codes([names[code] if code >= 0 else "" for code in table.column("name")[work].tolist()]),
            correlation=np.full(len(work), MISSING, dtype=np.int64),
            numbers={"group_id": group},
            texts={"kernel_details": kernel.astype(np.int64), "tf_op": self._operators(), "step_name": step},
            words=self._words.values,
        )

    def _codes(self, texts: list[str]) -> Array:
        return np.array(self._words.codes(texts), dtype=np.int64)

    def _places(self) -> tuple[list[str], list[Line], Array]:
        """Planes of devices, their streams as lines, and the line of each row."""
        device = self._table.column("device")[self._work]
        number = np.where((device == NO_END) | (device < 0), 0, device)
        thread = self._table.column("thread")[self._work].astype(np.int64)
        line, first = _engine.group_rows([np.ascontiguousarray(number), thread])
        devices = sorted({int(number[at]) for at in first})
        lines = []
        for place, at in enumerate(first.tolist()):
            track = self._reader.tracks.threads[int(thread[at])]
            own = track["id"] if isinstance(track["id"], int) else place
            lines.append(Line(devices.index(int(number[at])), own, str(track.get("name") or f"stream {track['id']}")))
        return [f"/device:GPU:{one}" for one in devices], lines, line

    def _operators(self) -> Array:
        """`module/path/op:op` of each row, NO_TEXT where no operator launched it."""
        table = self._table
        kinds = table.column("kind")
        nested = rules.is_cpu(table.column("device_type")) & rules.is_work(kinds) & ~rules.is_async(table)
        parent, _ = nest(table, nested & ~rules.is_kind(kinds, Kind.OVERHEAD))
        links = find_links(table, self._reader.flows(FLOW_CATEGORIES), self._reader.tracks)
        modules = by_module(table, parent, links)
        op = np.full(len(self._work), NO_ROW, dtype=np.int64)
        known = np.flatnonzero(self._launch != NO_ROW)
        is_op = rules.is_kind(kinds, Kind.CPU_OP)
        op[known] = _engine.nearest_above(parent, is_op.view(np.uint8), self._launch[known])
        names, code = rules.names_of(table), table.column("name")
        found = np.full(len(self._work), NO_TEXT, dtype=np.int64)
        for at in np.flatnonzero((op != NO_ROW) & (code[op] >= 0)).tolist():
            short = names[code[op[at]]].rpartition("::")[2]
            path = modules.texts[int(modules.code[self._work[at]])].replace(".", "/")
            found[at] = self._words.code(f"{path}/{short}:{short}".lstrip("/"))
        return found

    def _steps(self) -> tuple[Array, Array]:
        """(group, name of the step) of each row, by when it was launched."""
        marks = StepMarks()
        marks.add(self._table)
        steps = marks.steps(self._reader)
        start = self._table.columns["start"]
        when = start[np.where(self._launch == NO_ROW, self._work, self._launch)]
        at = np.searchsorted(steps.start, when, side="right") - 1
        inside = (at >= 0) & (when < steps.end[np.maximum(at, 0)]) if len(steps) else np.zeros(len(when), dtype=bool)
        codes = self._codes(list(steps.name))
        name = codes[np.maximum(at, 0)] if len(steps) else np.full(len(when), NO_TEXT, dtype=np.int64)
        return np.where(inside, at, MISSING), np.where(inside, name, NO_TEXT)
