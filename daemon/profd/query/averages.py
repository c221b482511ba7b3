"""Key averages: one row per name and device type, as in torch.profiler or as recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.flops import flops_of_rows
from profd.errors import BadInput
from profd.events import DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.query import rules, view
from profd.query.grouping import Labels, by_shapes, by_stack

SORT_KEYS: Final = (
    "self_cpu_time_total",
    "cpu_time_total",
    "self_device_time_total",
    "device_time_total",
    "count",
    "flops",
    "name",
)
SORT_DEFAULT: Final = "self_cpu_time_total"
RAW_COLUMNS: Final = ("name", "kind", "start", "end", "device_type", "self_time")


@dataclass(frozen=True, slots=True)
class Average:
    """One row of `top`. Times in ns. The optional ones are None where nobody asked or nothing is known."""

    name: str
    device_type: str
    count: int
    cpu_time_total_ns: int
    self_cpu_time_total_ns: int
    device_time_total_ns: int
    self_device_time_total_ns: int
    input_shapes: str | None = None  # JSON, when grouped by it
    stack: list[str] | None = None  # innermost first, when grouped by it
    flops: int | None = None  # where the trace has shapes

    def as_json(self) -> dict[str, Any]:
        """The row of `profctl top --json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Grouping:
    """What makes two calls the same, besides name and device type."""

    input_shape: bool = False
    stack_n: int = 0  # innermost frames

    def columns(self) -> tuple[str, ...]:
        """Columns that the grouping reads."""
        return (("inputs",) if self.input_shape else ()) + (("stack",) if self.stack_n > 0 else ())


def columns_for(raw: bool, grouping: Grouping) -> list[str]:
    """Columns that `averages` needs of a table."""
    base = RAW_COLUMNS if raw else view.COLUMNS
    return list(dict.fromkeys([*base, "thread", "phase", "inputs", *grouping.columns()]))


def averages(table: EventTable, *, raw: bool = False, grouping: Grouping | None = None) -> list[Average]:
    """The rows of `top` for a whole trace, in order of first call.

    Without `raw` as torch.profiler's `key_averages()`: duplicate wrappers merged,
    utility ops left out, `ProfilerStep#n` one row, annotations apart from ops of
    their name. With it every event counts as it was recorded, and device rows
    alone have device time.
    """
    calls = recorded_calls(table) if raw else view.torch_calls(table)
    return _group(table, calls, raw, grouping or Grouping())


def recorded_calls(table: EventTable) -> view.Calls:
    """Every row as it was recorded. Self time is the stored one: own time less direct children."""
    cpu = rules.is_cpu(table.column("device_type"))
    lasting = view.durations(table)
    own = view.recorded_self_time(table, lasting)
    zero = np.zeros(len(table), dtype=np.int64)
    return view.Calls(
        row=np.arange(len(table)),
        name=table.columns["name"],
        names=table.dictionaries["name"].values,
        cpu=np.where(cpu, lasting, zero),
        self_cpu=np.where(cpu, own, zero),
        device=np.where(cpu, zero, lasting),
        self_device=np.where(cpu, zero, lasting),
    )


def _group(table: EventTable, calls: view.Calls, raw: bool, grouping: Grouping) -> list[Average]:
    if not len(calls.row):
        return []
    place = table.column("device_type")[calls.row].astype(np.int64)
    if not raw:
        # Torch keeps an annotation apart from an op of the same name.
        place = place * 2 + rules.is_annotation(table.columns["kind"][calls.row])
    keys = [calls.name.astype(np.int64) * 32 + place]
    shapes = by_shapes(table, calls.row) if grouping.input_shape else None
    stacks = by_stack(table, calls.row, grouping.stack_n) if grouping.stack_n > 0 else None
    keys += [labels.code for labels in (shapes, stacks) if labels is not None]
    group, first = _engine.group_rows(keys)

    count = np.bincount(group, minlength=len(first))
    times = [
        _engine.sum_by(group, len(first), np.ascontiguousarray(values))
        for values in (calls.cpu, calls.self_cpu, calls.device, calls.self_device)
    ]
    device = table.column("device_type")[calls.row[first]]
    flops = _flops(table, calls, group, len(first))
    return [
        Average(
            name=calls.names[calls.name[at]] if calls.name[at] >= 0 else "",
            device_type=_DEVICE_LABELS.get(int(device[number]), "other"),
            count=int(count[number]),
            cpu_time_total_ns=int(times[0][number]),
            self_cpu_time_total_ns=int(times[1][number]),
            device_time_total_ns=int(times[2][number]),
            self_device_time_total_ns=int(times[3][number]),
            input_shapes=_label(shapes, at),
            stack=_frames(stacks, at),
            flops=None if flops is None else int(flops[number]),
        )
        for number, at in enumerate(first)
    ]


_DEVICE_LABELS: Final = {int(device): device.label for device in DeviceType}


def _label(labels: Labels | None, row: int) -> str | None:
    return None if labels is None else labels.texts[int(labels.code[row])]


def _frames(labels: Labels | None, row: int) -> list[str] | None:
    if labels is None:
        return None
    text = labels.texts[int(labels.code[row])]
    return text.split(";") if text else []


def _flops(table: EventTable, calls: view.Calls, group: Array, groups: int) -> Array | None:
    inputs = table.dictionaries.get("inputs")
    if "inputs" not in table.columns or not inputs or not inputs.values:
        return None
    ops = np.flatnonzero(table.columns["kind"][calls.row] == Kind.CPU_OP)
    rows = calls.row[ops]
    flops = flops_of_rows(
        table.dictionaries["name"], inputs, table.columns["name"][rows], table.columns["inputs"][rows]
    )
    return np.bincount(group[ops], weights=flops, minlength=groups)


def sort_averages(rows: list[Average], key: str) -> list[Average]:
    """Rows by one of SORT_KEYS: numbers from the largest, names from A. BadInput lists the keys."""
    if key not in SORT_KEYS:
        raise BadInput(f"cannot sort by {key!r}; sort by one of: {', '.join(SORT_KEYS)}")
    if key == "name":
        return sorted(rows, key=lambda row: (row.name, row.device_type))
    value = _value(key)
    return sorted(rows, key=lambda row: (-value(row), row.name, row.device_type))


def _value(key: str) -> Callable[[Average], int]:
    field = key if key in ("count", "flops") else f"{key}_ns"
    return lambda row: getattr(row, field) or 0
