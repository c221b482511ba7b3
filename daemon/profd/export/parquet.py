"""One Parquet file with a row per event, for DuckDB, pandas and others.

Codes are resolved: names, kinds, tracks are strings, absent is null, times are Unix ns (`start_ns`, `end_ns`). Text
that is no UTF-8 is escaped as in the store (`segments/text.py`). `row`, `parent` and `linked` are the rows of the whole
trace, also in a window of it. Arguments have a column each, `arg.<key>`; those that are JSON are its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profd.events import COLUMNS, NO_END, DeviceType, Dictionary, EventTable, Kind, Tracks
from profd.events.table import Array
from profd.export.rows import tables
from profd.model.text import encodable
from profd.query.part import numbers_of
from profd.segments.columns import LIST_ARG, arg_type, column_type, encode_arg, encode_column
from profd.segments.reader import TraceReader, Window
from profd.segments.text import escaped
from profd.workers.jobs import Progress

_WORDS: Final = pa.dictionary(pa.int32(), pa.string())
_RENAMED: Final = {"cat": "category", "start": "start_ns", "end": "end_ns", "self_time": "self_ns"}
_LABELLED: Final = ("kind", "device_type", "process", "thread", "end_thread", "phase")
_OF_TRACKS: Final = {"process_name": "process", "thread_name": "thread"}  # others are columns of their own name
# Computed by questions, not stored.
_LEFT_OUT: Final = ("flops",)
_PLAIN: Final = [name for name in COLUMNS if name not in (*_LABELLED, *_LEFT_OUT)]


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write the events that overlap a window (Unix ns) or all, and last so long; returns how many."""
    sheet = _Sheet(reader)
    total, count = max(1, len(reader)), 0
    with pq.ParquetWriter(_Sink(out), sheet.schema, compression="zstd", compression_level=3) as writer:
        for table in tables(reader, None, window, min_duration_ns):
            writer.write_table(sheet.rows(table))
            count += len(table)
            progress("exporting", min(1.0, count / total))
    return count


class _Sink:
    """A file as Arrow wants it: Arrow asks for the position, which a pipe does not know."""

    closed = False

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._at = 0

    def write(self, data: bytes) -> int:
        self._out.write(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._out.flush()

    def close(self) -> None:
        """The file is the caller's."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class _Sheet:
    """The columns of the file, and tables in them."""

    def __init__(self, reader: TraceReader) -> None:
        self._args = [(key, kind) for key, kind in reader.meta.args]
        self._tracks = _track_words(reader.tracks)
        self._kinds = [kind.label for kind in Kind]
        self._devices = [device.label for device in DeviceType]
        names = _ArgNames()
        fields = [pa.field("row", pa.int64())]
        fields += [pa.field(name, _WORDS) for name in ("kind", "device_type", *self._tracks, "phase")]
        fields += [pa.field(_RENAMED.get(name, name), column_type(COLUMNS[name])) for name in _PLAIN]
        fields += [pa.field("duration_ns", pa.int64())]
        fields += [pa.field(names.of(key, kind), arg_type(kind)) for key, kind in self._args]
        self.schema = pa.schema(fields)

    def rows(self, table: EventTable) -> pa.Table:
        """A table as Arrow, in this schema."""
        arrays: list[pa.Array] = [pa.array(numbers_of(table))]
        arrays += [
            _words(table.column("kind"), self._kinds),
            _words(table.column("device_type"), self._devices),
            *(_words(table.column(_OF_TRACKS.get(name, name)), words) for name, words in self._tracks.items()),
            _words(table.column("phase"), [chr(code) if code else None for code in range(128)]),
        ]
        arrays += [self._column(table, name) for name in _PLAIN]
        arrays.append(_duration(table))
        types = [field.type for field in self.schema][len(arrays) :]
        arrays += [_argument(table, key, arrow) for key, arrow in zip(self._args, types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    @staticmethod
    def _column(table: EventTable, name: str) -> pa.Array:
        spec = COLUMNS[name]
        words = {spec.dictionary: table.dictionaries.get(spec.dictionary, Dictionary())} if spec.dictionary else {}
        return encode_column(spec, table.column(name), words, column_type(spec))


class _ArgNames:
    """The column names of arguments: `arg.<key>`; the type is appended where a key comes with several.

    List columns of the schema have their own names.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, key: str, kind: str) -> str:
        """The name of a column."""
        name = key if kind == LIST_ARG else escaped(f"arg.{key}")
        while name in self._taken:
            name += f":{kind}"
        self._taken.add(name)
        return name


def _argument(table: EventTable, key: tuple[str, str], arrow: pa.DataType) -> pa.Array:
    arg = table.args.get(key)
    return pa.nulls(len(table), arrow) if arg is None else encode_arg(arg, 0, len(table), arrow)


def _duration(table: EventTable) -> pa.Array:
    start, end = table.columns["start"], table.column("end")
    known = end != NO_END
    return pa.array(np.where(known, end, start) - start, mask=~known)


def _words(codes: Array, words: Sequence[str | None]) -> pa.Array:
    """Small numbers as words; null for those that have none."""
    missing = np.array([word is None for word in words] + [True])
    index = np.where((codes >= 0) & (codes < len(words)), codes, len(words)).astype(np.int32)
    known = pa.array([word or "" for word in words] + [""], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=missing[index]), known)


def _track_words(tracks: Tracks) -> dict[str, list[str | None]]:
    """Per column, the word of each track number."""
    threads = [_text(track["id"]) for track in tracks.threads]
    return {
        "process": [_text(track["id"]) for track in tracks.processes],
        "process_name": [_text(track.get("name")) for track in tracks.processes],
        "thread": threads,
        "thread_name": [_text(track.get("name")) for track in tracks.threads],
        "end_thread": threads,
    }


def _text(value: Any) -> str | None:
    return None if value is None else encodable(str(value))
