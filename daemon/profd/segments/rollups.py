"""What was worked out of one trace for one kind of question: a file beside the trace (docs/store.md, Rollups).

    profd-rollup {"format": 1, "rules": …, "trace": …, "events": …, "plain": bytes, "crc": …}\\n   then the body, zstd

A worker writes it and a worker reads it, and either may have been taken over by a trace: what is not as expected, stale
or damaged counts as not there, and the question is answered from the events.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from profd import __version__
from profd.limits import ROLLUP_BYTES_MAX, TILES_BYTES_MAX
from profd.segments.rollup_files import file_name

_Value = TypeVar("_Value")

FORMAT: Final = 1
_MAGIC: Final = b"profd-rollup "
_HEADER_BYTES_MAX: Final = 1024
_CODEC: Final = pa.Codec("zstd", 1)
_KEY: Final = b"profd-rollup"
_CODED: Final = pa.dictionary(pa.int32(), pa.string())
_PARQUET: Final[dict[str, Any]] = {
    "write_page_checksum": True,
    "store_schema": False,
    "write_statistics": False,
    "data_page_size": 1 << 30,  # a row group is a page
}


class NeedsStaging(Exception):
    """What is asked takes long, and could be kept: ask again with a place for it."""


class NeedsEvents(Exception):
    """What was kept of this trace does not answer the question, and its events are not to be read."""


DAMAGE: Final = (pa.ArrowException, OSError, ValueError, LookupError, RecursionError, MemoryError)
"""What reading a damaged file raises."""


class _Header(msgspec.Struct, frozen=True):
    """What a rollup is of, and by which rules. One of another release is stale: it answers by today's."""

    format: int
    rules: str
    trace: str
    events: int
    plain: int  # bytes of the body before it was compressed
    crc: int  # of the compressed body: nothing is synced, and a page may be lost


@dataclass(frozen=True, slots=True)
class Rollups:
    """The rollups of one trace. `kept`: where they lie, or what is in each; `fresh`: where new ones may be written,
    numbered `place`.
    """

    kept: Path | Mapping[str, memoryview] | None = None
    fresh: Path | None = None
    place: int = 0
    rules: str = ""  # of the question that is asked; `rules_of`
    trace: str = ""
    events: int = 0
    asks: bool = False  # for a place, where one is needed
    kept_only: bool = False  # the events are not to be read

    def before_long_work(self) -> None:
        """NeedsStaging where what comes of it could be kept, and there is no place for it yet."""
        if self.asks:
            raise NeedsStaging

    def before_events(self) -> None:
        """NeedsEvents where they are not to be read."""
        if self.kept_only:
            raise NeedsEvents(self.trace)

    def of(self, trace: str, events: int) -> Rollups:
        """The same of this trace, with so many events."""
        return replace(self, trace=trace, events=events)

    def table(self, name: str, schema: pa.Schema) -> pa.Table | None:
        """The table that was kept under this name, or None."""
        body = self._body(name)
        if body is None:
            return None
        try:
            found = pa.ipc.open_stream(body).read_all()
            if not found.schema.equals(schema):
                return None
            found.validate(full=True)
        except (pa.ArrowException, OSError, MemoryError):
            return None
        return found

    def value(self, name: str) -> Any:
        """The JSON value that was kept under this name, or None."""
        body = self._body(name)
        try:
            return None if body is None else json.loads(body.to_pybytes())
        except (ValueError, RecursionError, MemoryError):
            return None

    def parquet(self, name: str, schema: pa.Schema) -> pq.ParquetFile | None:
        """The file of many rows that was kept under this name, to be read in parts, or None. Texts come as codes.

        Its pages have checksums: what raises `DAMAGE` while it is read counts as not there, too.
        """
        if not isinstance(self.kept, Path):  # small ones alone are packed
            return None
        try:
            texts = [field.name for field in schema if pa.types.is_string(field.type)]
            file = pq.ParquetFile(self.kept / name, page_checksum_verification=True, read_dictionary=texts or None)
            said = msgspec.json.decode((file.metadata.metadata or {})[_KEY], type=_Header)
            columns = file.schema_arrow.remove_metadata()
        except DAMAGE:
            return None
        return file if self._is_of(said) and columns.equals(_coded(schema)) else None

    def keep_parquet(self, name: str, schema: pa.Schema, write: Callable[[pq.ParquetWriter], None]) -> None:
        """Write one for later questions, where that is wanted and the disk takes it."""
        if self.fresh is None:
            return
        path = self.fresh / file_name(self.place, name)
        said = msgspec.json.encode(_Header(FORMAT, self.rules, self.trace, self.events, 0, 0))
        try:
            with pq.ParquetWriter(path, schema, **_PARQUET, **_encodings(schema)) as writer:
                write(writer)
                writer.add_key_value_metadata({_KEY: said})
            if path.stat().st_size > TILES_BYTES_MAX:
                path.unlink()
        except (pa.ArrowException, OSError):  # the answer does not depend on it
            with contextlib.suppress(OSError):
                os.unlink(path)

    def keep_table(self, name: str, make: Callable[[], pa.Table]) -> None:
        """Write one for later questions, where that is wanted and it fits; what is too large is not kept."""
        if self.fresh is None:
            return
        with contextlib.suppress(OverflowError, pa.ArrowInvalid):  # sums of a trace that 64 bits do not hold
            table, out = make(), io.BytesIO()
            with pa.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table.combine_chunks())
            self._write(name, out.getvalue())

    def keep_value(self, name: str, value: Any) -> None:
        """The same of a JSON value."""
        if self.fresh is not None:
            self._write(name, json.dumps(value).encode("ascii"))

    def _body(self, name: str) -> pa.Buffer | None:
        if self.kept is None:
            return None
        try:
            with self._file(self.kept, name) as file:
                head = file.readline(_HEADER_BYTES_MAX)
                header = msgspec.json.decode(head.removeprefix(_MAGIC), type=_Header)
                if not head.startswith(_MAGIC) or not self._is_of(header):
                    return None
                packed = file.read(ROLLUP_BYTES_MAX + 1)
            if len(packed) > ROLLUP_BYTES_MAX or zlib.crc32(packed) != header.crc:
                return None
            return _CODEC.decompress(packed, header.plain)
        except (OSError, LookupError, ValueError, RecursionError, pa.ArrowException, MemoryError):
            return None

    @staticmethod
    def _file(kept: Path | Mapping[str, memoryview], name: str) -> BinaryIO:
        return io.BytesIO(kept[name]) if isinstance(kept, Mapping) else open(kept / name, "rb")

    def _is_of(self, header: _Header) -> bool:
        said = header.format, header.rules, header.trace, header.events
        return said == (FORMAT, self.rules, self.trace, self.events) and 0 <= header.plain <= ROLLUP_BYTES_MAX

    def _write(self, name: str, body: bytes) -> None:
        packed = _CODEC.compress(body, asbytes=True)
        header = _Header(FORMAT, self.rules, self.trace, self.events, len(body), zlib.crc32(packed))
        head = _MAGIC + msgspec.json.encode(header) + b"\n"
        if self.fresh is None or len(body) > ROLLUP_BYTES_MAX or len(head) > _HEADER_BYTES_MAX:
            return
        path = self.fresh / file_name(self.place, name)
        try:
            path.write_bytes(head + packed)
        except OSError:  # the answer does not depend on it
            with contextlib.suppress(OSError):
                os.unlink(path)


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Numbers as their differences: less bytes than by a dictionary of them, and half the time, both ways.

    Snappy finds nearly as much in these as zstd does, which takes a third of the time of writing.
    """
    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    texts = [field.name for field in schema if field.name not in numbers]
    return {
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        "compression": {**dict.fromkeys(numbers, "snappy"), **dict.fromkeys(texts, "zstd")},
        "compression_level": dict.fromkeys(texts, 1),
    }


def _coded(schema: pa.Schema) -> pa.Schema:
    """As it is read: texts by their codes."""
    coded = [field.with_type(_CODED) if pa.types.is_string(field.type) else field for field in schema]
    return pa.schema(coded)


NONE: Final = Rollups()


def kept_value(rollups: Rollups, name: str, fits: Callable[[Any], bool], make: Callable[[], _Value]) -> _Value:
    """The JSON value that was kept, where it `fits`, or the one of `make`, which is kept."""
    found: _Value | None = rollups.value(name)
    if found is None or not fits(found):
        found = make()
        rollups.keep_value(name, found)
    return found


def rules_of(question: str, version: int) -> str:
    """What must be the same for a rollup to be today's: the release, and the rules of the question."""
    return f"{__version__} {question} {version}"
