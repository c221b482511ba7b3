"""A pyramid as rollups of its trace: three files of Parquet, of which a question reads the row groups of its window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profd import _engine
from profd.events import Dictionary
from profd.events.table import Array
from profd.query.tiles.lanes import Lanes, cut
from profd.query.tiles.named import PARTS, Named
from profd.query.tiles.pyramid import Pyramid, names_of, top_of
from profd.query.tiles.seen import LEVELS, buckets_of
from profd.query.tiles.shapes import Boxes, Cells
from profd.segments.columns import decode_codes
from profd.segments.reader import TraceReader, Window
from profd.segments.rollups import DAMAGE
from profd.segments.text import text_array, words_of

_Shape = TypeVar("_Shape", Boxes, Cells)
LANES, BOXES, CELLS = NAMES = ("tiles-lanes", "tiles-boxes", "tiles-cells")
NAMED: Final = "tiles-names"  # not needed to draw
_GROUP_ROWS: Final = 1 << 13
_GROUPS_MOST: Final = 256  # of a large file: its footer is read for each question
_BOUNDS: Final = b"profd-groups"
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
_NAMED: Final = pa.schema(
    [
        ("part", _I32),
        ("count", _I64),
        ("row", _I64),
        ("start", _I64),
        ("lasts", _I64),
        ("name", pa.string()),
    ]
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
    if pyramid.named is not None:
        _keep_named(reader, pyramid.named)


def _keep_named(reader: TraceReader, found: Named) -> None:
    words = text_array(names_of(reader)).take(pa.array(found.name))
    columns = [found.part, found.count, found.row, found.start, found.lasts, words]
    reader.rollups.keep_parquet(NAMED, _NAMED, lambda out: out.write_table(_table(_NAMED, columns)))


def named(reader: TraceReader) -> tuple[list[str], Named] | None:
    """(names by code, where they are), as it was kept of this trace, or None."""
    file = reader.rollups.parquet(NAMED, _NAMED)
    if file is None:
        return None
    try:
        table = file.read().unify_dictionaries()
        words = table.column("name").combine_chunks()
        part, count, row, start, lasts = (table.column(name).to_numpy() for name in _NAMED.names[:-1])
        for values, most in ((row, len(reader)), (part, PARTS)):
            _check_range(values, most)
        return words_of(words.dictionary, plain=False), Named(part, words.indices.to_numpy(), count, row, start, lasts)
    except DAMAGE:
        return None


def _table(schema: pa.Schema, columns: list[Any]) -> pa.Table:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _write_boxes(out: pq.ParquetWriter, boxes: Boxes, reader: TraceReader) -> None:
    levels = _engine.coarsest_levels(np.ascontiguousarray(boxes.weight, dtype=np.int64))
    order = np.lexsort((boxes.start, -levels))
    words = text_array([cut(name) for name in names_of(reader)])
    bounds = _Bounds()
    for some in _groups(len(order)):
        part, level = boxes.take(order[some]), levels[order[some]]
        names = words.take(pa.array(part.name, mask=part.name < 0))
        columns = [level, part.start, part.lasts, part.lane, part.kind, names, part.row]
        out.write_table(_table(_BOXES, columns))
        bounds.add(level, part.start)
    out.add_key_value_metadata(bounds.metadata)


def _write_cells(out: pq.ParquetWriter, pyramid: Pyramid) -> None:
    levels = sorted(pyramid.cells, reverse=True)
    number = np.concatenate([np.full(len(pyramid.cells[level]), level, dtype=np.int32) for level in levels])
    cells = Cells.joined([pyramid.cells[level] for level in levels])
    bounds = _Bounds()
    for some in _groups(len(cells)):
        part, level = cells.take(some), number[some]
        columns = [level, part.bucket, part.lane, part.count, part.busy, part.kinds]
        out.write_table(_table(_CELLS, columns))
        bounds.add(level, part.bucket)
    out.add_key_value_metadata(bounds.metadata)


def _groups(rows: int) -> Iterator[slice]:
    """The row groups of a file."""
    size = max(_GROUP_ROWS, -(-rows // _GROUPS_MOST))
    return (slice(first, first + size) for first in range(0, rows, size))


class _Bounds:
    """Between which levels and which places the rows of each group lie, in the file's metadata.

    Parquet's own statistics take as long to look at as the rows of a group do to read.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []

    def add(self, level: Array, place: Array) -> None:
        """The next group."""
        self._rows.append((int(level.min()), int(level.max()), int(place.min()), int(place.max())))

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """For the file."""
        return {_BOUNDS: np.array(self._rows, dtype="<i8").tobytes()}

    @staticmethod
    def of(file: pq.ParquetFile) -> list[tuple[int, int, int, int]]:
        """(finest, coarsest, first, last) of each group. ValueError, LookupError."""
        known = np.frombuffer(file.metadata.metadata[_BOUNDS], dtype="<i8").reshape(file.metadata.num_row_groups, 4)
        return [*map(tuple, known.tolist())]


def _check_range(values: Array, count: int) -> None:
    if len(values) and (int(values.min()) < 0 or int(values.max()) >= count):
        raise ValueError("it names what there is not")


class Damaged(Exception):
    """What was kept is not as it was written."""


def _or_damaged(read: Callable[[Kept, Window, int], _Shape]) -> Callable[[Kept, Window, int], _Shape]:
    @wraps(read)
    def reading(self: Kept, window: Window, level: int) -> _Shape:
        try:
            return read(self, window, level)
        except DAMAGE as error:
            raise Damaged from error

    return reading


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
        boxes, cells = self.boxes_of(window, level), self.cells_of(window, level)
        return Pyramid(self._begin, self.base, self.lanes, boxes, {level: cells})

    @_or_damaged
    def boxes_of(self, window: Window, level: int) -> Boxes:
        """Of the boxes of this level all with a part in the window, and others. Damaged."""
        low, high = window

        def needed(finest: int, coarsest: int, first: int, last: int) -> bool:
            earliest = low - (1 << min(coarsest + 1, LEVELS))  # a longer one could be seen at the next level
            return coarsest >= level and first < high and (coarsest == LEVELS - 1 or last >= earliest)

        table = _read(self._boxes, needed)
        number, start, lasts, lane, kind, row = (
            table.column(name).to_numpy() for name in ("level", "start", "lasts", "lane", "kind", "row")
        )
        name = decode_codes(table.column("name"), self._reader.dictionaries.setdefault("name", Dictionary()))
        _check_range(lane, len(self.lanes.key))
        _check_range(row, len(self._reader))
        weight = np.int64(1) << np.clip(number, 0, LEVELS - 1).astype(np.int64)
        return Boxes(lane, start, lasts, weight, kind, name, row)

    @_or_damaged
    def cells_of(self, window: Window, level: int) -> Cells:
        """The same of cells of this level, `base` or coarser. Damaged."""
        level = min(level, self._top)
        low, high = buckets_of(window, level, self._begin)

        def needed(finest: int, coarsest: int, first: int, last: int) -> bool:
            beside = finest == coarsest and (first > high or last < low)
            return finest <= level <= coarsest and not beside

        table = _read(self._cells, needed)
        columns = {name: table.column(name).to_numpy() for name in _CELLS.names}
        wanted = np.flatnonzero(columns.pop("level") == level)
        cells = Cells(**columns).take(wanted)
        _check_range(cells.lane, len(self.lanes.key))
        return cells


def _read(file: pq.ParquetFile, needed: Callable[[int, int, int, int], bool]) -> pa.Table:
    """The row groups that are needed, by the bounds of their levels and places."""
    return file.read_row_groups([number for number, bounds in enumerate(_Bounds.of(file)) if needed(*bounds)])


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
