"""A pyramid as rollups of its trace: three files of Parquet, of which a question reads the row groups of its window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profd.events import Dictionary
from profd.events.table import Array
from profd.query.tiles.lanes import Lanes, cut
from profd.query.tiles.pyramid import Pyramid, levels_of, top_of
from profd.query.tiles.seen import LEVELS, buckets_of
from profd.query.tiles.shapes import Boxes, Cells
from profd.segments.columns import decode_codes
from profd.segments.reader import TraceReader, Window
from profd.segments.rollups import DAMAGE

LANES, BOXES, CELLS = NAMES = ("tiles-lanes", "tiles-boxes", "tiles-cells")
_GROUP_ROWS: Final = 1 << 15
_I64, _I32, _U8 = pa.int64(), pa.int32(), pa.uint8()
_LANES: Final = pa.schema([("key", _I64), ("events", _I64), ("first", _I64), ("until", _I64), ("base", _I32)])
_BOXES: Final = pa.schema(
    [
        ("level", _I32),
        ("start", _I64),
        ("lasts", _I64),
        ("lane", _I32),
        ("kind", _U8),
        ("name", pa.string()),
        ("row", _I64),
    ]
)
_CELLS: Final = pa.schema(
    [("level", _I32), ("bucket", _I64), ("lane", _I32), ("count", _I64), ("busy", _I64), ("kinds", _I32)]
)


def keep(reader: TraceReader, pyramid: Pyramid) -> None:
    """Write it beside the trace, where that is wanted."""
    rollups = reader.rollups
    lanes = pyramid.lanes
    base = np.full(len(lanes.key), pyramid.base, dtype=np.int32)
    columns = [lanes.key, lanes.events, lanes.first, lanes.until, base]
    rollups.keep_parquet(LANES, _LANES, lambda out: out.write_table(_table(_LANES, columns)))
    rollups.keep_parquet(BOXES, _BOXES, lambda out: _write_boxes(out, pyramid.boxes, reader))
    rollups.keep_parquet(CELLS, _CELLS, lambda out: _write_cells(out, pyramid))


def _table(schema: pa.Schema, columns: list[Any]) -> pa.Table:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _write_boxes(out: pq.ParquetWriter, boxes: Boxes, reader: TraceReader) -> None:
    levels = levels_of(boxes.weight)
    order = np.lexsort((boxes.start, -levels))
    names = [cut(name) for name in reader.dictionaries["name"].values] if "name" in reader.dictionaries else []
    for first in range(0, len(order), _GROUP_ROWS):
        some = order[first : first + _GROUP_ROWS]
        part = boxes.take(some)
        known, places = np.unique(part.name, return_inverse=True)
        words = pa.array([names[code] if code >= 0 else None for code in known.tolist()], pa.string())
        columns = [levels[some], part.start, part.lasts, part.lane, part.kind, words.take(pa.array(places)), part.row]
        out.write_table(_table(_BOXES, columns))


def _write_cells(out: pq.ParquetWriter, pyramid: Pyramid) -> None:
    levels = sorted(pyramid.cells, reverse=True)
    number = np.concatenate([np.full(len(pyramid.cells[level]), level, dtype=np.int32) for level in levels])
    cells = Cells.joined([pyramid.cells[level] for level in levels])
    for first in range(0, max(len(cells), 1), _GROUP_ROWS):
        some = slice(first, first + _GROUP_ROWS)
        columns = [
            number[some],
            cells.bucket[some],
            cells.lane[some],
            cells.count[some],
            cells.busy[some],
            cells.kinds[some],
        ]
        out.write_table(_table(_CELLS, columns))


class Damaged(Exception):
    """What was kept is not as it was written."""


class Kept:
    """A pyramid that lies beside a trace."""

    def __init__(
        self, reader: TraceReader, lanes: pq.ParquetFile, boxes: pq.ParquetFile, cells: pq.ParquetFile
    ) -> None:
        self._reader, self._boxes, self._cells = reader, boxes, cells
        table = lanes.read()
        key, events, first, until, base = (table.column(name).to_numpy() for name in _LANES.names)
        self.lanes = Lanes(key, events, first, until)
        self.base = int(base[0])
        self._begin, self._end = reader.meta.start_ns or 0, reader.meta.end_ns or 0
        if not 0 <= self.base <= self._top:
            raise ValueError("there is no such level")

    @property
    def _top(self) -> int:
        return top_of(self._begin, self._end)

    def part(self, window: Window, level: int) -> Pyramid:
        """What a window needs of it at one level, `base` or coarser. Damaged."""
        level = min(level, self._top)
        try:
            boxes, cells = self._boxes_of(window, level), self._cells_of(window, level)
        except DAMAGE as error:
            raise Damaged from error
        return Pyramid(self._begin, self.base, self.lanes, boxes, {level: cells})

    def _boxes_of(self, window: Window, level: int) -> Boxes:
        """Of the boxes of this level all with a part in the window, and others."""
        low, high = window

        def needed(group: dict[str, tuple[int, int]]) -> bool:
            coarsest = group["level"][1]
            earliest = low - (1 << min(coarsest + 1, LEVELS))  # a longer one could be seen at the next level
            return (
                coarsest >= level
                and group["start"][0] < high
                and (coarsest == LEVELS - 1 or group["start"][1] >= earliest)
            )

        table = _read(self._boxes, ("level", "start"), needed)
        number, start, lasts, lane, kind, row = (
            table.column(name).to_numpy() for name in ("level", "start", "lasts", "lane", "kind", "row")
        )
        name = decode_codes(table.column("name"), self._reader.dictionaries.setdefault("name", Dictionary()))
        self._check(lane, len(self.lanes.key))
        self._check(row, len(self._reader))
        weight = np.int64(1) << np.clip(number, 0, LEVELS - 1).astype(np.int64)
        return Boxes(lane, start, lasts, weight, kind, name, row)

    def _cells_of(self, window: Window, level: int) -> Cells:
        low, high = buckets_of(window, level, self._begin)

        def needed(group: dict[str, tuple[int, int]]) -> bool:
            finest, coarsest = group["level"]
            alone = finest == coarsest
            return finest <= level <= coarsest and not (
                alone and (group["bucket"][0] > high or group["bucket"][1] < low)
            )

        table = _read(self._cells, ("level", "bucket"), needed)
        columns = {name: table.column(name).to_numpy() for name in _CELLS.names}
        wanted = np.flatnonzero(columns.pop("level") == level)
        cells = Cells(**columns).take(wanted)
        self._check(cells.lane, len(self.lanes.key))
        return cells

    @staticmethod
    def _check(values: Array, count: int) -> None:
        if len(values) and (int(values.min()) < 0 or int(values.max()) >= count):
            raise ValueError("it names what there is not")


def _read(
    file: pq.ParquetFile, known: tuple[str, ...], needed: Callable[[dict[str, tuple[int, int]]], bool]
) -> pa.Table:
    """The row groups that are needed, by the bounds of some columns."""
    groups = []
    places = {name: file.schema_arrow.names.index(name) for name in known}
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        bounds = {name: group.column(place).statistics for name, place in places.items()}
        if not all(one is not None and one.has_min_max for one in bounds.values()):
            if group.num_rows:
                groups.append(number)
            continue
        if needed({name: (one.min, one.max) for name, one in bounds.items()}):
            groups.append(number)
    return file.read_row_groups(groups)


def found(reader: TraceReader) -> Kept | None:
    """The one that was kept of this trace, or None."""
    files = [reader.rollups.parquet(name, schema) for name, schema in zip(NAMES, (_LANES, _BOXES, _CELLS), strict=True)]
    lanes, boxes, cells = files
    if lanes is None or boxes is None or cells is None:
        return None
    try:
        return Kept(reader, lanes, boxes, cells)
    except DAMAGE:
        return None
