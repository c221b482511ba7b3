"""What torch.profiler's tables leave out, fold together and count as what.

View rules: they decide what a table shows, never what a trace holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.events import DeviceType, Dictionary, EventTable, Kind
from profd.events.table import Array

MEMORY_NAME: Final = "[memory]"
OUT_OF_MEMORY_NAME: Final = "[OutOfMemory]"
STEP_PREFIX: Final = "ProfilerStep#"
STEP_FOLDED: Final = "ProfilerStep*"

UTILITY_OPS: Final = frozenset(
    {
        MEMORY_NAME,  # shown only where no event covers it
        OUT_OF_MEMORY_NAME,
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)

# Rows that are marks or values, not work.
_NOT_WORK: Final = (Kind.TRACE, Kind.INSTANT, Kind.MEMORY, Kind.COUNTER)
_ANNOTATIONS: Final = (Kind.USER_ANNOTATION, Kind.GPU_USER_ANNOTATION)
ASYNC_PHASE: Final = ord("b")


def is_kind(kinds: Array, *wanted: Kind) -> Array:
    """Which rows are of one of these kinds."""
    table = np.zeros(256, dtype=bool)
    table[list(wanted)] = True
    return table[kinds]


def is_work(kinds: Array) -> Array:
    """Which rows are events to torch's tables (marks, counters and the trace's own span are not)."""
    return ~is_kind(kinds, *_NOT_WORK)


def is_annotation(kinds: Array) -> Array:
    """Which rows are ranges that a user named, on the CPU or their shadow on a device."""
    return is_kind(kinds, *_ANNOTATIONS)


def is_cpu(device_types: Array) -> Array:
    """Which rows ran on the CPU."""
    cpu: Array = device_types == DeviceType.CPU
    return cpu


def is_named(table: EventTable, wanted: frozenset[str]) -> Array:
    """Which rows have one of these names."""
    values = table.dictionaries["name"].values
    among = np.zeros(len(values) + 1, dtype=bool)  # the last entry answers for NO_CODE
    among[[code for code, value in enumerate(values) if value in wanted]] = True
    if not among.any():
        return np.zeros(len(table), dtype=bool)
    return among[table.columns["name"]]


def fold_steps(names: Dictionary) -> tuple[list[str], Array]:
    """(names of the table, code of the trace -> index of them): every `ProfilerStep#n` is one name."""
    values = list(names.values)
    fold = np.arange(max(len(values), 1), dtype=np.int64)
    steps = [code for code, value in enumerate(values) if value.startswith(STEP_PREFIX)]
    if steps:
        try:
            folded = values.index(STEP_FOLDED)
        except ValueError:
            folded = len(values)
            values.append(STEP_FOLDED)
        fold[steps] = folded
    return values, fold
