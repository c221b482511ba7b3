"""Rows of the dialect `torch-legacy`, and their arguments in the columns that they belong in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from profd import limits
from profd.decode.batch import Batch
from profd.decode.legacy_records import json_text, text_of
from profd.decode.torch_frames import is_shown_frame
from profd.events import COLUMNS, NO_CODE, NO_END, ArgColumn, DeviceType, Dictionary, EventTable, Kind

_INT64_MAX: Final = np.iinfo(np.int64).max
_INTEGERS: Final = {
    "Sequence number": "sequence",
    "sequence_nr": "sequence",
    "Fwd thread id": "fwd_thread",
    "fwd_thread": "fwd_thread",
    "Bytes": "bytes",
    "Total Allocated": "total_allocated",
    "Total Reserved": "total_reserved",
    "Addr": "ptr",
}
_DEVICE_KEY: Final = "Device Type"
_DEVICE_INDEX: Final = "Device Id"
_INPUTS: Final = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
_SHAPES: Final = {"input_shapes": "Input Dims", "shapes": "Input Dims"}
_STACKS: Final = ("Call stack", "stack")


@dataclass(slots=True)
class Row:
    """One row to be; times in Unix ns, places as track numbers."""

    kind: Kind
    name: str
    category: str
    start: int
    end: int
    process: int
    thread: int
    args: dict[str, Any]
    asynchronous: bool = False


@dataclass(slots=True)
class _Arg:
    rows: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    dictionary: Dictionary = field(default_factory=Dictionary)


class Rows:
    """Gathers rows; `batch` makes one of all, in torch's order: by start, the longer first."""

    def __init__(self, dictionaries: dict[str, Dictionary]) -> None:
        self.rows: list[Row] = []
        self.counted: dict[str, int] = {}
        self._dictionaries = dictionaries
        for name in ("name", "cat", "stack", "inputs"):
            dictionaries.setdefault(name, Dictionary())
        self._args: dict[tuple[str, str], _Arg] = {}

    def add(self, row: Row) -> None:
        """Take one."""
        self.rows.append(row)

    def batch(self) -> Batch:
        """All rows."""
        self.rows.sort(key=lambda row: (row.start, -row.end))
        count = len(self.rows)
        columns: dict[str, Any] = {
            name: np.full(count, COLUMNS[name].absent, dtype=COLUMNS[name].dtype)
            for name in ("stack", "inputs", "device", *_INTEGERS.values())
        }
        host = int(DeviceType.CPU)
        columns["device_type"] = np.full(count, host, dtype=COLUMNS["device_type"].dtype)
        plain: dict[str, list[int]] = {
            "name": self._dictionaries["name"].codes([row.name for row in self.rows]),
            "cat": self._dictionaries["cat"].codes([row.category for row in self.rows]),
            "kind": [row.kind for row in self.rows],
            "phase": [ord(_phase(row)) for row in self.rows],
            "is_async": [row.asynchronous for row in self.rows],
            "start": [row.start for row in self.rows],
            "end": [row.end for row in self.rows],
            "process": [row.process for row in self.rows],
            "thread": [row.thread for row in self.rows],
        }
        columns |= {name: np.array(values, dtype=COLUMNS[name].dtype) for name, values in plain.items()}
        columns["cat"][[not row.category for row in self.rows]] = NO_CODE
        for number, row in enumerate(self.rows):
            self._spread(number, row, columns)
        return Batch(EventTable(columns, self._dictionaries, self._arg_columns()))

    def _spread(self, number: int, row: Row, columns: dict[str, Any]) -> None:
        inputs: dict[str, Any] = {}
        for key, value in row.args.items():
            if key in _INTEGERS and _fits(value):
                columns[_INTEGERS[key]][number] = value
            elif key == _DEVICE_INDEX and _fits(value):
                columns["device"][number] = value
            elif key == _DEVICE_KEY and _fits(value) and row.kind == Kind.MEMORY:
                columns["device_type"][number] = DeviceType.CPU if value == 0 else DeviceType.CUDA
            elif key in _STACKS and (stack := _stack(value)) is not None:
                columns["stack"][number] = self._dictionaries["stack"].code(stack) if stack else NO_CODE
            elif key in _INPUTS or key in _SHAPES:
                inputs[_SHAPES.get(key, key)] = value
            else:
                self._keep(number, key, value)
        if inputs and (text := json_text(inputs)):
            columns["inputs"][number] = self._dictionaries["inputs"].code(text)

    def _keep(self, number: int, key: str, value: Any) -> None:
        kind = "int" if _fits(value) else "json"
        key = text_of("@" + key if key.startswith("@") else key)
        text = "" if kind == "int" else json_text(value)
        full = (key, kind) not in self._args and len(self._args) >= limits.ARG_KEYS_MAX
        if full or not (text or kind == "int"):
            self.counted["arguments_dropped"] = self.counted.get("arguments_dropped", 0) + 1
            return
        column = self._args.setdefault((key, kind), _Arg())
        column.rows.append(number)
        column.values.append(value if kind == "int" else column.dictionary.code(text))

    def _arg_columns(self) -> dict[tuple[str, str], ArgColumn]:
        found = {}
        for (key, kind), column in self._args.items():
            values = np.array(column.values, dtype=np.int64 if kind == "int" else np.int32)
            rows = np.array(column.rows, dtype=np.int64)
            found[key, kind] = ArgColumn(kind, rows, values, None if kind == "int" else column.dictionary)
        return found


def _phase(row: Row) -> str:
    if row.kind != Kind.CPU_OP:
        return "i"
    return "b" if row.asynchronous else "B"


def _fits(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and NO_END < value <= _INT64_MAX


def _stack(value: Any) -> str | None:
    """Frames joined by ';', innermost first, less those that torch hides; None where it is no stack."""
    frames = value.split(";") if isinstance(value, str) else value
    if not isinstance(frames, list) or not all(isinstance(frame, str) for frame in frames):
        return None
    return text_of(";".join(filter(is_shown_frame, frames)))
