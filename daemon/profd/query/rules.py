"""Rules of torch.profiler's tables: rows that are left out, folded together, or counted as others.

View rules: they decide what a table shows, never what a trace holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.memory import MEMORY_NAME, OUT_OF_MEMORY_NAME
from profd.events import NO_CODE, NO_ROW, DeviceType, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.limits import DEMANGLE_NAME_BYTES_MAX, DEMANGLE_RESULT_BYTES_MAX, DEMANGLE_TOTAL_BYTES_MAX

STEP_PREFIX: Final = "ProfilerStep#"
STEP_FOLDED: Final = "ProfilerStep*"
SYMBOL_PREFIX: Final = "_Z"  # of a C++ function's name in object code
_DEMANGLED_AT_ONCE: Final = 256  # so that no more than 4 MiB are made in vain

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
NOT_WORK: Final = (Kind.TRACE, Kind.INSTANT, Kind.MEMORY, Kind.COUNTER)
FUNCTIONS: Final = (Kind.PYTHON_FUNCTION, Kind.SAMPLE)  # traced or sampled: what calls itself is counted once
_ANNOTATIONS: Final = (Kind.USER_ANNOTATION, Kind.GPU_USER_ANNOTATION)
ASYNC_PHASES: Final = b"bne"
ASYNC_COLUMNS: Final = ("phase", "is_async", "end_thread")  # what `is_async` looks at


def _is_any(values: Array, wanted: Iterable[int]) -> Array:
    # A few comparisons of bytes are several times faster than a look-up per row.
    found = np.zeros(len(values), dtype=bool)
    for value in wanted:
        found |= values == value
    return found


def is_kind(kinds: Array, *wanted: Kind) -> Array:
    """Which rows are of one of these kinds."""
    return _is_any(kinds, wanted)


def is_work(kinds: Array) -> Array:
    """Which rows are events to torch's tables (marks, counters and the trace's own span are not)."""
    return ~is_kind(kinds, *NOT_WORK)


def is_annotation(kinds: Array) -> Array:
    """Which rows are ranges that a user named, on the CPU or their shadow on a device."""
    return is_kind(kinds, *_ANNOTATIONS)


def is_cpu(device_types: Array) -> Array:
    """Which rows ran on the CPU."""
    cpu: Array = device_types == DeviceType.CPU
    return cpu


def names_of(table: EventTable) -> list[str]:
    """Names by code."""
    known = table.dictionaries.get("name")
    return known.values if known is not None else []


def is_async(table: EventTable) -> Array:
    """Which rows are asynchronous: they overlap freely, or end on another thread, and are on nobody's stack."""
    phases = table.columns.get("phase")
    found = np.zeros(len(table), dtype=bool) if phases is None else _is_any(phases, ASYNC_PHASES)
    if "is_async" in table.columns:
        found |= table.columns["is_async"] != 0
    return found | ends_elsewhere(table) if "end_thread" in table.columns else found


def ends_elsewhere(table: EventTable) -> Array:
    """Which rows ended on another thread than they began on: asynchronous ones, as to torch."""
    ended = table.column("end_thread")
    elsewhere: Array = (ended != NO_ROW) & (ended != table.column("thread"))
    return elsewhere


class Named:
    """Which rows have a name that fits, in tables that share a growing dictionary: each name is looked at once."""

    def __init__(self, fits: Callable[[str], bool]) -> None:
        self._fits = fits
        self._known = np.zeros(0, dtype=bool)

    def of(self, table: EventTable) -> Array:
        """A flag per row."""
        new = names_of(table)[len(self._known) :]
        self._known = np.append(self._known, np.array([self._fits(name) for name in new], dtype=bool))
        found: Array = np.append(self._known, False)[table.column("name")]  # the last answers for NO_CODE
        return found


def is_named(table: EventTable, wanted: frozenset[str]) -> Array:
    """Which rows have one of these names."""
    values = names_of(table)
    among = np.zeros(len(values) + 1, dtype=bool)  # the last entry answers for NO_CODE
    among[[code for code, value in enumerate(values) if value in wanted]] = True
    if not among.any():
        return np.zeros(len(table), dtype=bool)
    found: Array = among[table.column("name")]
    return found


def shown_names(names: list[str], code: Array) -> tuple[list[str], Array]:
    """(names as tables show them, for each row its index in them or NO_CODE).

    C++ symbols are demangled, and every `ProfilerStep#n` is one name.
    """
    changed = [number for number, value in enumerate(names) if value.startswith((STEP_PREFIX, SYMBOL_PREFIX))]
    if not changed:
        return names, code
    shown = Dictionary(list(names))
    fold = np.arange(len(names) + 1, dtype=np.int32)
    fold[-1] = NO_CODE  # which is its own index
    for number, value in zip(changed, demangled([names[number] for number in changed]), strict=True):
        fold[number] = shown.code(STEP_FOLDED if value.startswith(STEP_PREFIX) else value)
    return shown.values, fold[code]


def demangled(names: list[str]) -> list[str]:
    """The names with C++ symbols as they were written; see `_engine.demangle` for what stays as it is.

    Torch also takes the short names of types, as "Pf", for symbols: here a symbol begins with `_Z`.
    """
    symbols = [number for number, name in enumerate(names) if name.startswith(SYMBOL_PREFIX) and name.isascii()]
    if not symbols:
        return names
    found = list(names)
    for number, name in zip(symbols, _written([names[number] for number in symbols]), strict=False):
        found[number] = name
    return found


def _written(symbols: list[str]) -> Iterator[str]:
    """Of as many of them, in order, as make no more than DEMANGLE_TOTAL_BYTES_MAX; the rest is left out."""
    total = 0
    for first in range(0, len(symbols), _DEMANGLED_AT_ONCE):
        for name in _engine.demangle(
            symbols[first : first + _DEMANGLED_AT_ONCE],
            name_max=DEMANGLE_NAME_BYTES_MAX,
            result_max=DEMANGLE_RESULT_BYTES_MAX,
        ):
            total += len(name)
            if total > DEMANGLE_TOTAL_BYTES_MAX:
                return
            yield name
