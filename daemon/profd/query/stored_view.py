"""Averages by torch's rules from the tree that a trace is stored with: nothing is nested anew, few columns are read.

The stored tree replays stacks, and torch's view (`view.py`) nests strictly, and other rows. Where no two calls overlap
partially and every end was seen, the nearest row above that torch nests is the one that encloses a row there, too.
Allocations, samples and CUDA events, which have rules of their own, are left to the view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.flops import flops_of_table
from profd.derive.memory import MEMORY_NAME, OUT_OF_MEMORY_NAME
from profd.events import COLUMNS, NO_CODE, NO_ROW, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.limits import QUERY_ROWS_MAX
from profd.query import event_times, rules
from profd.query.estimates import looks_of
from profd.query.roles import roles_of
from profd.query.stored_sums import StoredSums, has_strict_tree
from profd.query.view import op_by_external_id
from profd.segments.contract import DURATION, FIELDS
from profd.segments.pages import STRANGE
from profd.segments.reader import TraceReader
from profd.segments.row_group import RowGroup
from profd.tree.roles import OVERLAPPING_PHASES, nests_on_host

_OF_ALL: Final = ("name", "kind", "phase", "is_async", DURATION, "device_type", "parent", "inputs")
_OF_WORK: Final = ("external", "linked")
_COLUMNS: Final = (*_OF_ALL, *_OF_WORK, "correlation", "thread", "fwd_thread")
# A thread that decodes lets go of the GIL a hundred times for each trace, and two that do keep each other waiting. With
# turns they wait two fifths less often, and it takes no longer.
_ONE_DECODES: Final = Lock()
_OF_VIEW: Final = {MEMORY_NAME, OUT_OF_MEMORY_NAME, event_times.NAME}
_SEGMENTS_MAX: Final = 64  # files that are open at once
_KINDS: Final = np.arange(256)
_NESTS, _FUNCTION, _APART = 1, 2, 4  # bits of native/engine/view.cpp
_OF_KIND: Final = (
    np.array([nests_on_host(kind) for kind in range(256)]) * _NESTS
    + rules.is_kind(_KINDS, *rules.FUNCTIONS) * _FUNCTION
    + rules.is_annotation(_KINDS) * _APART
).astype(np.uint8)
_OVERLAPS: Final = OVERLAPPING_PHASES.view(np.uint8)
_DEVICES: Final = 256


def stored_view(reader: TraceReader) -> StoredSums | None:
    """The sums of a whole trace, by name; None where its stored tree does not tell what torch's view is."""
    if not has_strict_tree(reader) or looks_of(reader.meta) is not None:
        return None
    if not 0 < len(reader) <= QUERY_ROWS_MAX or len(reader.segments) > _SEGMENTS_MAX:
        return None
    try:
        on_device = reader.meta.gpu_events != 0 or reader.has("linked")
        stored = _Stored.of(reader)
        with _ONE_DECODES:
            stored.decode((*_OF_ALL, *(_OF_WORK if on_device else ())))
        return _sums(stored, on_device=on_device)
    except (*STRANGE, _Elsewhere):  # what is not as it was written is named by whoever decodes all of it
        return None


class _Elsewhere(Exception):
    """The view has to be asked."""


@dataclass(slots=True)
class _Stored:
    """Columns of a whole trace, each read when it is asked for. Methods raise STRANGE."""

    rows: int
    groups: list[RowGroup]
    dictionaries: dict[str, Dictionary] = field(default_factory=dict)
    columns: dict[str, Array] = field(default_factory=dict)  # those that were decoded

    @classmethod
    def of(cls, reader: TraceReader) -> _Stored:
        groups = list(reader.row_groups(_COLUMNS))
        if sum(map(len, groups)) != len(reader):
            raise ValueError("it has not as many rows as were written")
        return cls(len(reader), groups)

    def has(self, name: str) -> bool:
        """Whether any row has a value."""
        return bool(self.groups) and self.groups[0].has(name)

    def decode(self, names: Iterable[str]) -> None:
        """Have these columns, of which some may have no value, before they are asked for."""
        self.columns |= {name: self.column(name) for name in names if self.has(name)}

    def column(self, name: str) -> Array:
        """As a table has it; of DURATION durations."""
        if name in self.columns:
            return self.columns[name]
        spec = COLUMNS[FIELDS[name].column or name]
        if not self.has(name):
            return np.full(self.rows, spec.absent or 0, dtype=spec.dtype)
        found, at = np.empty(self.rows, dtype=spec.dtype), 0
        for group in self.groups:
            group.decode(name, self.dictionaries, found[at : at + len(group)])
            at += len(group)
        return found

    def are(self, name: str, rows: Array, values: Array) -> bool:
        """Whether these rows, which ascend, have these values: the first row group tells, nearly always."""
        at, spec = 0, COLUMNS[name]
        for group in self.groups:
            low, high = np.searchsorted(rows, (at, at + len(group)))
            if low < high:
                found = np.full(len(group), spec.absent or 0, dtype=spec.dtype)
                if self.has(name):
                    group.decode(name, self.dictionaries, found)
                if (values[low:high] != found[rows[low:high] - at]).any():
                    return False
            at += len(group)
        return True


def _sums(stored: _Stored, *, on_device: bool) -> StoredSums:
    """What `view.torch_calls` works out, added up by name. _Elsewhere where the stored tree does not tell."""
    columns = {name: stored.column(name) for name in ("name", "kind", "device_type")}
    columns |= {name: stored.column(name) for name in ("phase", "is_async", "inputs") if stored.has(name)}
    if "phase" in columns and bool((columns["phase"] == ord("X")).all()):
        del columns["phase"]  # nothing to look at, row by row
    table = EventTable(columns, stored.dictionaries)
    if not _OF_VIEW.isdisjoint(rules.names_of(table)) or _has(columns["kind"], Kind.SAMPLE):
        raise _Elsewhere
    names, name = rules.shown_names(rules.names_of(table), columns["name"])
    role = roles_of(table)
    view = _engine.StoredView(
        role=role,
        kind=columns["kind"],
        device_type=columns["device_type"],
        name=name,
        names=len(names),
        parent=stored.column("parent"),
        lasting=stored.column(DURATION),
        phase=columns.get("phase"),
        thread=stored.column("thread") if stored.has("fwd_thread") else None,
        of_kind=_OF_KIND,
        overlaps=_OVERLAPS,
    )
    if not view.known:
        raise _Elsewhere
    op = _ops(stored, view.work(), role, view) if on_device else np.full(len(view.work()), NO_ROW, dtype=np.int64)
    found = view.sums(op, _outermost(view, columns["kind"], name, len(names)))
    if found is None:
        raise _Elsewhere
    return _by_name(table, (names, name), found)


def _by_name(table: EventTable, shown: tuple[list[str], Array], found: tuple[Array, ...]) -> StoredSums:
    """The groups of `StoredView.sums`, one for each row of a table. `shown`: as of `rules.shown_names`."""
    part, counted, first, *sums = found
    columns, (names, name) = table.columns, shown
    device_type, kind = columns["device_type"][first], columns["kind"][first]
    annotation = rules.is_annotation(kind)
    # What differs in more than tables tell is one group.
    keys = [(name[first], len(names) + 1), (device_type, _DEVICES), (annotation.view(np.uint8), 2)]
    group, leader, _, sums = _engine.sum_groups(keys, np.ones(len(first), np.uint8), sums)
    flops = flops_of_table(table, part, len(first), counted)
    flops = None if flops is None else np.bincount(group, weights=flops, minlength=len(leader))
    kept = np.flatnonzero(sums[0])
    leader = leader[kept]
    count, cpu, self_cpu, device, self_device = (of_group[kept] for of_group in sums)
    return StoredSums(
        names=[names[code] if code != NO_CODE else "" for code in name[first[leader]].tolist()],
        device_type=device_type[leader],
        shadow=kind[leader] == Kind.GPU_USER_ANNOTATION,
        annotation=annotation[leader],
        count=count,
        cpu=cpu,
        self_cpu=self_cpu,
        device=device,
        self_device=self_device,
        flops=None if flops is None else flops[kept],
    )


def _outermost(view: _engine.StoredView, kind: Array, name: Array, names: int) -> Array | None:
    """Which functions no call of the same name is around; None: there are no functions."""
    if not _has(kind, Kind.PYTHON_FUNCTION):
        return None
    group = np.ascontiguousarray(name, dtype=np.int64) + 1
    return _engine.outermost(group, names + 1, _OF_KIND[kind] & _FUNCTION, view.above())


def _has(kinds: Array, kind: Kind) -> bool:
    """Whether some row is of this kind."""
    return bytes([kind]) in kinds.tobytes()


def _ops(stored: _Stored, work: Array, role: Array, view: _engine.StoredView) -> Array:
    """The op that all work of devices belongs to, NO_ROW where there is none."""
    op = op_by_external_id(stored.column("external"), role, work, partial(stored.are, "correlation"))
    unknown = np.flatnonzero(op == NO_ROW)
    if len(unknown):
        op[unknown] = view.ops_around(stored.column("linked")[work[unknown]])
    return op
