"""Writes a trace directory: segments, flows, `meta.json`.

Runs in a worker, into a staging directory that nobody else sees; durability
(fsync, rename) is the store's when it adopts the directory.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from profd.disk.files import disk
from profd.events import COLUMNS, NO_END, Dictionary, EventTable, Flows, Kind
from profd.segments import parquet
from profd.segments.fold import fold
from profd.segments.late import LateCells
from profd.segments.meta import FLOWS_FILE, FORMAT, META_FILE, SegmentInfo, TraceMeta, encode_json, segment_file
from profd.segments.segment_writer import held, write_segment_file
from profd.segments.side_files import FlowWriter

Array = npt.NDArray[Any]

_GPU_KINDS: Final = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
_PATCHABLE: Final = frozenset(
    name for name, spec in COLUMNS.items() if spec.dictionary is None and spec.dtype is not np.float64
) - {"start", "end"}


class TraceWriter:
    """Writes one trace into an existing, empty directory.

    Segments in order, flows and late patches whenever they are known, `finish`
    last. Not finishing leaves a directory without `meta.json`, which is no
    trace. A context, after which nothing is written any more: a directory that
    is removed too early would get files again. Raises Exhausted when the disk
    does not take it, ValueError for rows out of order (a fault of the caller).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: list[SegmentInfo] = []
        self._rows = 0
        self._gpu_events = 0
        self._dictionaries: dict[str, Dictionary] = {}
        self._columns: dict[str, None] = {}  # that have values, in order of first use
        self._args: dict[tuple[str, str], None] = {}
        self._flows = FlowWriter(directory / FLOWS_FILE)
        self._late = LateCells()
        # Arrow encodes and compresses without the GIL: one segment is written while the next is made.
        self._background = ThreadPoolExecutor(1, "segment-writer")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._background.shutdown()

    @property
    def rows(self) -> int:
        """Rows written so far: the `first_row` of the next segment."""
        return self._rows

    def write_segment(self, table: EventTable) -> None:
        """Write the next segment; `table.first_row` must be `rows`, starts ascending. Empty: nothing.

        The table must not change any more: it is written while the caller goes
        on. The next call raises an error of this one.
        """
        if table.first_row != self._rows:
            raise ValueError(f"segment starts at row {table.first_row}, expected {self._rows}")
        self._dictionaries = table.dictionaries
        if len(table) == 0:
            return
        info = self._describe(table)
        names = held(table)
        self._columns.update(dict.fromkeys(names))
        self._args.update(dict.fromkeys(key for key, arg in table.args.items() if len(arg.rows)))
        self._wait()
        self._writing = self._background.submit(write_segment_file, self._directory / info.file, table, names)
        self._segments.append(info)
        self._rows += len(table)
        kind = table.column("kind")
        self._gpu_events += sum(int(np.count_nonzero(kind == gpu)) for gpu in _GPU_KINDS)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _describe(self, table: EventTable) -> SegmentInfo:
        start = table.columns["start"]
        last = self._segments[-1].start_ns if self._segments else None
        if bool((start[1:] < start[:-1]).any()) or (last is not None and int(start[0]) < last):
            raise ValueError("rows of a segment must be in start order")
        end = table.column("end")
        return SegmentInfo(
            file=segment_file(len(self._segments)),
            first_row=self._rows,
            rows=len(table),
            start_ns=int(start[0]),
            end_ns=max(int(start[-1]), int(end.max())),
            unended=int((end == NO_END).sum()),
            groups_end_ns=_groups_end(start, end),
        )

    def write_flows(self, flows: Flows, dictionaries: dict[str, Dictionary] | None = None) -> None:
        """Add flow records. Codes are those of `dictionaries`, or of the latest segment's."""
        self._flows.add(flows, self._dictionaries if dictionaries is None else dictionaries)

    def write_late(self, rows: Array, columns: dict[str, Array]) -> None:
        """Patch rows of segments that are already written; later patches win. `finish` puts them in.

        Columns of integers only (self_time, parent, depth, linked …), no times; an absent value is
        written as it is in memory and makes the cell absent.
        """
        unknown = columns.keys() - _PATCHABLE
        if unknown:
            raise ValueError(f"columns that cannot be patched: {sorted(unknown)}")
        for name, values in columns.items():
            self._late.add(rows, name, values)
            if len(rows):
                self._columns[name] = None

    def _fold(self) -> None:
        patches = self._late.patches()
        for info in self._segments:
            cells = patches.within(info.first_row, info.rows)
            if cells:
                fold(self._directory / info.file, cells)

    def finish(self, meta: TraceMeta) -> TraceMeta:
        """Close all files and write `meta.json`; returns `meta` with what the writer knows filled in."""
        self._wait()
        self._background.shutdown()
        self._fold()
        self._flows.close()
        meta.segments = self._segments
        meta.events = self._rows
        meta.flows = self._flows.rows
        meta.format, meta.late = FORMAT, 0
        meta.columns = list(self._columns)
        meta.args = list(self._args)
        if meta.gpu_events is None:
            meta.gpu_events = self._gpu_events
        if self._segments:
            meta.start_ns = self._segments[0].start_ns
            meta.end_ns = max(info.end_ns for info in self._segments)
        path = self._directory / META_FILE
        with disk(path):
            meta.bytes = sum(entry.stat().st_size for entry in self._directory.iterdir())
            path.write_bytes(encode_json(meta))
        return meta


def _groups_end(start: Array, end: Array) -> list[int | None]:
    """Until when the rows of each row group last; None where a row has no end."""
    groups: list[int | None] = []
    for first in range(0, len(start), parquet.GROUP_ROWS):
        part = end[first : first + parquet.GROUP_ROWS]
        unended = bool((part == NO_END).any())
        groups.append(None if unended else int(max(part.max(), start[first : first + parquet.GROUP_ROWS][-1])))
    return groups
