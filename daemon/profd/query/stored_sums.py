"""Averages as recorded from the self times that a trace is stored with: nothing is nested anew, few columns are read.

The stored tree replays stacks, and `recorded.py` nests strictly. Self times are the same where no two calls overlap
partially, every end was seen, and both let the same rows nest: what the trace, and each row, must say. Functions may
call themselves, which the sums of a row group do not tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.flops import flops_of_parts
from profd.events import NO_CODE, NO_END, NO_ROW, DeviceType, Dictionary, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.averages import nodes_of
from profd.query.recorded import NEVER_NESTS
from profd.segments.contract import DURATION
from profd.segments.pages import STRANGE
from profd.segments.reader import TraceReader
from profd.segments.row_group import RowGroup, words
from profd.tree.build import same_threads
from profd.tree.roles import OVERLAPPING_PHASES, nests_on_host

_COLUMNS: Final = ("name", "kind", "phase", DURATION, "device_type", "self_time", "inputs")
_OTHERWISE: Final = ("partial_overlap", "no_end")  # anomalies of a tree that is not one of strict intervals
_KINDS: Final = np.arange(256)
_SAME_FOR_ALL: Final = ~np.isin(_KINDS, rules.FUNCTIONS)
_ON_HOST: Final = np.array([nests_on_host(kind) for kind in range(256)])
# For rows of no known device, for calls, and for work of devices: kinds that the tree lets nest where we do.
_FITS: Final = np.concatenate(
    [_SAME_FOR_ALL & ~_ON_HOST, _SAME_FOR_ALL & (np.isin(_KINDS, NEVER_NESTS) != _ON_HOST), _SAME_FOR_ALL]
).view(np.uint8)
_PHASES: Final = (np.isin(_KINDS, list(rules.ASYNC_PHASES)) == OVERLAPPING_PHASES).view(np.uint8)
_DEVICES: Final = 256


@dataclass(slots=True)
class StoredSums:
    """Groups of events by name and device type, in order of first row; times in ns. Fields are those of `Average`."""

    names: list[str]
    device_type: Array
    shadow: Array  # bool: its first row is a device's range for an annotation
    annotation: Array  # bool: torch keeps it apart from ops of its name
    count: Array
    cpu: Array
    self_cpu: Array
    device: Array
    self_device: Array
    flops: Array | None  # None: the trace has no shapes


def stored_sums(reader: TraceReader) -> StoredSums | None:
    """Sums of a whole trace; None where its stored self times may differ from strict nesting, row by row or at all."""
    if not has_strict_tree(reader):
        return None
    sums = _Sums()
    try:
        for rows in reader.row_groups(_COLUMNS):
            if not sums.add(rows):
                return None
    except STRANGE:  # not as it was written: whoever decodes all of it names the file
        return None
    return sums.together() if len(reader) else None


def has_strict_tree(reader: TraceReader) -> bool:
    """Whether the tree that a trace is stored with is one of strict intervals, of the threads that it names."""
    meta = reader.meta
    if meta.format == 1 or reader.hides or not {"name", DURATION, "self_time"} <= set(meta.columns):
        return False
    if "end_thread" in meta.columns or any(meta.anomalies.get(one) for one in _OTHERWISE):
        return False
    if any(info.unended for info in meta.segments) or nodes_of(meta.tracks):
        return False
    return same_threads(meta.tracks) is None


@dataclass(slots=True)
class _Sums:
    """Of row groups, whose names are numbered together only once each is summed."""

    _names: Dictionary = field(default_factory=Dictionary)
    _parts: list[tuple[Array, ...]] = field(default_factory=list)
    _flops: list[Array] = field(default_factory=list)
    _shapes: bool = False

    def add(self, rows: RowGroup) -> bool:
        """Whether these rows can be summed."""
        code, texts = rows.codes("name")
        kind, device = rows.numbers("kind", NO_ROW), rows.numbers("device_type", NO_ROW)
        phase = rows.numbers("phase", 0) if rows.has("phase") else None
        lasting, own = rows.numbers(DURATION, NO_END), rows.numbers("self_time", NO_END)
        found = _engine.sum_stored(code, len(texts), kind, device, phase, lasting, own, _FITS, _PHASES)
        if found is None:
            return False
        group, first, count, took, alone = found
        names = words(texts)
        known = np.array([*self._names.codes(names), NO_CODE], dtype=np.int32)
        self._parts.append((known[code[first]], device[first], kind[first], count, took, alone))
        self._flops.append(self._flops_of(rows, names, code, kind, group, first))
        return True

    def _flops_of(
        self, rows: RowGroup, names: list[str], code: Array, kind: Array, group: Array, first: Array
    ) -> Array:
        if not rows.has("inputs"):
            return np.zeros(len(first))
        inputs, texts = rows.codes("inputs")
        self._shapes |= len(texts) > 0
        return flops_of_parts(group, len(first), (code, names), kind, (inputs, words(texts)))

    def together(self) -> StoredSums:
        """Groups of the same name and device are one."""
        code, device, kind, count, took, alone = map(np.concatenate, zip(*self._parts, strict=True))
        keys = [(code, len(self._names) + 1), (device, _DEVICES)]
        group, first, _, (count, took, alone) = _engine.sum_groups(
            keys, np.ones(len(code), np.uint8), [count, took, alone]
        )
        flops = np.bincount(group, weights=np.concatenate(self._flops), minlength=len(first))
        on_cpu = device[first] == DeviceType.CPU
        on_device = np.where(on_cpu, 0, took)
        return StoredSums(
            names=[self._names.values[at] if at != NO_CODE else "" for at in code[first].tolist()],
            device_type=device[first],
            shadow=kind[first] == Kind.GPU_USER_ANNOTATION,
            annotation=np.zeros(len(first), dtype=bool),
            count=count,
            cpu=np.where(on_cpu, took, 0),
            self_cpu=alone,
            device=on_device,
            self_device=on_device,
            flops=flops if self._shapes else None,
        )
