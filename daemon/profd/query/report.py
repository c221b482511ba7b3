"""Key averages as the text table that torch.profiler prints, column for column.

Columns that need what a trace does not have (memory, shapes, stacks, FLOPS,
device work) are left out, as torch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from profd.errors import BadInput
from profd.query.averages import Average
from profd.segments import plain_json

ROW_LIMIT: Final = 100
SOURCE_WIDTH_MAX: Final = 75
_NAME_WIDTH_MAX: Final = 55
_SHAPES_WIDTH_MAX: Final = 80
_COLUMN_WIDTH: Final = 12
_GAP: Final = "  "
_FLOPS_UNITS: Final = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
_US: Final = 1000  # ns

# Torch's names; `cuda` and `xpu` in one mean the device.
_SORT_VALUES: Final[dict[str, Callable[[Average], float]]] = {
    "self_cpu_time_total": lambda row: row.self_cpu_time_total_ns,
    "cpu_time_total": lambda row: row.cpu_time_total_ns,
    "cpu_time": lambda row: row.cpu_time_total_ns / max(row.count, 1),
    "self_device_time_total": lambda row: row.self_device_time_total_ns,
    "device_time_total": lambda row: row.device_time_total_ns,
    "device_time": lambda row: row.device_time_total_ns / max(row.count, 1),
    "cpu_memory_usage": lambda row: row.cpu_memory_usage or 0,
    "self_cpu_memory_usage": lambda row: row.self_cpu_memory_usage or 0,
    "device_memory_usage": lambda row: row.device_memory_usage or 0,
    "self_device_memory_usage": lambda row: row.self_device_memory_usage or 0,
    "count": lambda row: row.count,
    "flops": lambda row: row.flops or 0,
}


@dataclass(slots=True)
class _Column:
    title: str
    width: int
    cell: Callable[[Average], str]
    align: str = ">"

    def text(self, value: str) -> str:
        return f"{value:{self.align}{self.width}}" + _GAP


@dataclass(slots=True)
class _Layout:
    """The layout that all rows together decide."""

    rows: Sequence[Average]
    source_width_max: int | None
    cpu_ns: int = field(init=False)  # self time of all rows
    device_ns: int = field(init=False)
    device: str = field(init=False)  # type of the devices with work, or empty
    shapes: list[str] = field(init=False)

    def __post_init__(self) -> None:
        on_device = [row for row in self.rows if row.device_type != "CPU" and not row.shadow]
        self.cpu_ns = sum(row.self_cpu_time_total_ns for row in self.rows)
        # Where CUDA events told of it, device time is that of ops alone.
        self.device_ns = sum(row.self_device_time_total_ns for row in on_device or self.rows)
        has_time = any(row.self_device_time_total_ns for row in self.rows)
        self.device = next((row.device_type.upper() for row in on_device), "DEVICE") if has_time else ""
        self.shapes = [_shapes(row) for row in self.rows]

    def columns(self) -> list[_Column]:
        width = min(max((len(row.name) for row in self.rows), default=0) + 4, _NAME_WIDTH_MAX)
        columns = [_Column("Name", width, _name), *self._cpu()]
        if self.device:
            columns += self._device_times()
        if any(row.cpu_memory_usage is not None for row in self.rows):
            columns += self._memory()
        columns.append(_Column("# of Calls", _COLUMN_WIDTH, lambda row: str(row.count)))
        if any(row.node_id is not None for row in self.rows):
            columns.append(
                _Column("Node ID", _COLUMN_WIDTH, lambda row: str(-1 if row.node_id is None else row.node_id))
            )
        if any(text != "[]" for text in self.shapes):
            columns.append(self._input_shapes())
        return [*columns, *self._sources(), *self._flops()]

    def _cpu(self) -> list[_Column]:
        return [
            _share("Self CPU %", lambda row: row.self_cpu_time_total_ns, self.cpu_ns),
            _time("Self CPU", lambda row: row.self_cpu_time_total_ns),
            _share("CPU total %", lambda row: row.cpu_time_total_ns, self.cpu_ns),
            _time("CPU total", lambda row: row.cpu_time_total_ns),
            _time("CPU time avg", lambda row: row.cpu_time_total_ns / max(row.count, 1)),
        ]

    def _device_times(self) -> list[_Column]:
        device = self.device
        return [
            _time(f"Self {device}", lambda row: row.self_device_time_total_ns),
            _share(f"Self {device} %", lambda row: row.self_device_time_total_ns, self.device_ns),
            _time(f"{device} total", lambda row: row.device_time_total_ns),
            _time(f"{device} time avg", lambda row: row.device_time_total_ns / max(row.count, 1)),
        ]

    def _memory(self) -> list[_Column]:
        columns = [
            _bytes("CPU Mem", lambda row: row.cpu_memory_usage),
            _bytes("Self CPU Mem", lambda row: row.self_cpu_memory_usage),
        ]
        if any((row.self_device_memory_usage or 0) > 0 for row in self.rows):
            device = self.device or "DEVICE"
            columns += [
                _bytes(f"{device} Mem", lambda row: row.device_memory_usage),
                _bytes(f"Self {device} Mem", lambda row: row.self_device_memory_usage),
            ]
        return columns

    def _input_shapes(self) -> _Column:
        width = min(max(map(len, self.shapes)) + 4, _SHAPES_WIDTH_MAX)
        return _Column("Input Shapes", width, lambda row: _shapes(row)[:width])

    def _sources(self) -> list[_Column]:
        frames = [frame for row in self.rows for frame in row.stack or ()]
        if not frames:
            return []
        width = max(map(len, frames)) + 4
        width = width if self.source_width_max is None else min(width, self.source_width_max)
        return [_Column("Source Location", width, lambda row: _ending((row.stack or [""])[0], width), "<")]

    def _flops(self) -> list[_Column]:
        known = [row.flops for row in self.rows if row.flops]
        if not known:
            return []
        power = int(max(0, min(math.log10(min(known)) / 3, len(_FLOPS_UNITS) - 1)))
        scale = 10.0 ** (-3 * power)
        return [
            _Column(
                f"Total {_FLOPS_UNITS[power]}",
                _COLUMN_WIDTH,
                lambda row: f"{row.flops * scale:8.3f}" if row.flops else "--",
            )
        ]


def text_table(
    rows: Sequence[Average],
    sort_by: str | None = None,
    row_limit: int = ROW_LIMIT,
    max_src_column_width: int | None = SOURCE_WIDTH_MAX,
    header: str | None = None,
    top_level_events_only: bool = False,
) -> str:
    """The table; empty without rows. See `Averages.table`."""
    if not rows:
        return ""
    layout = _Layout(_sorted(rows, sort_by), max_src_column_width)
    columns = layout.columns()
    rule = "".join("-" * column.width + _GAP for column in columns)
    double = "=" * (len(rule) - len(_GAP))
    lines = [] if header is None else [double, header]
    lines += [double, "This report only display top-level ops statistics"] if top_level_events_only else []
    lines += [rule, "".join(column.text(column.title) for column in columns), rule]
    shown = [row for row in layout.rows if row.top_level or not top_level_events_only]
    for row in shown if row_limit < 0 else shown[:row_limit]:
        lines += _lines(row, columns)
    lines += [rule, f"Self CPU time total: {_duration(layout.cpu_ns)}"]
    lines += [f"Self {layout.device} time total: {_duration(layout.device_ns)}"] if layout.device else []
    return "\n".join(lines) + "\n"


def _sorted(rows: Sequence[Average], key: str | None) -> list[Average]:
    if key is None:
        return list(rows)
    value = _SORT_VALUES.get(key.replace("cuda", "device").replace("xpu", "device"))
    if value is None:
        raise BadInput(f"cannot sort by {key!r}; sort by one of: {', '.join(_SORT_VALUES)}")
    return sorted(rows, key=value, reverse=True)


def _lines(row: Average, columns: list[_Column]) -> list[str]:
    """A row, and one more line for each further frame of its stack and after the last."""
    lines = ["".join(column.text(column.cell(row)) for column in columns)]
    source = next((column for column in columns if column.align == "<"), None)
    if source is not None:
        for frame in [*(row.stack or [])[1:], None]:
            cells = (_ending(frame, source.width) if column is source and frame else "" for column in columns)
            lines.append("".join(column.text(cell) for column, cell in zip(columns, cells, strict=True)))
    return lines


def _time(title: str, ns: Callable[[Average], float]) -> _Column:
    return _Column(title, _COLUMN_WIDTH, lambda row: _duration(ns(row)))


def _share(title: str, ns: Callable[[Average], int], whole: int) -> _Column:
    return _Column(title, _COLUMN_WIDTH, lambda row: f"{ns(row) * 100.0 / whole:.2f}%" if whole else "NaN")


def _bytes(title: str, count: Callable[[Average], int | None]) -> _Column:
    return _Column(title, _COLUMN_WIDTH, lambda row: _size(count(row) or 0))


def _duration(ns: float) -> str:
    us = ns / _US
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _size(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def _name(row: Average) -> str:
    most = _NAME_WIDTH_MAX - 3
    return row.name if len(row.name) < most else row.name[:most] + "..."


def _shapes(row: Average) -> str:
    return str(plain_json.loads(row.input_shapes)) if row.input_shapes else "[]"


def _ending(path: str, width: int) -> str:
    """The end of a path that is too long, where its file name is."""
    if len(path) <= width:
        return path
    cut = path[len(path) - width :]
    return "..." + cut[3:] if len(cut) > 3 else cut
