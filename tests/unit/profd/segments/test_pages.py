"""Columns from their pages, against Arrow's reader of the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine
from profd.errors import BadTrace
from profd.segments.pages import STRANGE, Page, Pages, Strange, pages_of
from profd.segments.reader import TraceReader
from profd.segments.segment import SegmentFile

from tests.support.tables import Event, store, table_of

ABSENT = -7
NUMBERS = st.one_of(
    st.none(),
    st.integers(0, 3),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-(2**63), 2**63 - 1, 2**62, -(2**62), 2**31, 2**32]),
)
RUNS = st.lists(st.tuples(NUMBERS, st.sampled_from([1, 2, 7, 31, 64, 129])), max_size=12).map(
    lambda runs: [value for value, times in runs for _ in range(times)]
)
CODECS = st.sampled_from(["none", "snappy", "zstd"])


def written(tmp_path: Path, array: pa.Array, *, nullable: bool = True, **options: Any) -> Path:
    """A file of one column in one row group."""
    file = tmp_path / "column.parquet"
    schema = pa.schema([pa.field("column", array.type, nullable=nullable)])
    table = pa.Table.from_arrays([array], schema=schema)
    pq.write_table(table, file, row_group_size=max(len(array), 1), write_page_checksum=True, **options)
    return file


def pages(file: Path) -> Pages:
    """Of the only column."""
    metadata = pq.ParquetFile(file).metadata
    levels = metadata.schema.column(0).max_definition_level
    return pages_of(pa.OSFile(str(file)), metadata.row_group(0).column(0), levels)


@given(
    RUNS,
    st.sampled_from([pa.int32(), pa.int64()]),
    st.sampled_from(["PLAIN", "DELTA_BINARY_PACKED", ""]),
    CODECS,
    st.sampled_from([64, 1 << 30]),
)
def test_numbers_are_those_that_arrow_reads(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[int | None],
    kind: pa.DataType,
    encoding: str,
    codec: str,
    page: int,
) -> None:
    if pa.types.is_int32(kind):
        values = [None if value is None else value if -(2**31) <= value < 2**31 else value % 1000 for value in values]
    array = pa.array(values, kind)
    chosen: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"column": encoding}} if encoding else {}
    file = written(tmp_path_factory.mktemp("p"), array, compression=codec, data_page_size=page, **chosen)
    if not len(array):
        return
    out = np.empty(len(array), dtype=kind.to_pandas_dtype())
    assert pages(file).numbers(out, ABSENT) == len(array) - array.null_count
    assert out.tolist() == [ABSENT if value is None else value for value in values]


@given(st.lists(st.sampled_from([None, "", "a", "é", "aten::mm"]), min_size=1, max_size=300), CODECS)
def test_text_is_that_which_arrow_reads(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None], codec: str
) -> None:
    file = written(tmp_path_factory.mktemp("p"), pa.array(values, pa.string()), compression=codec)
    found = pages(file)
    words = [*found.words().to_pylist(), None]
    out = np.empty(len(values), dtype=np.int32)
    found.codes(out, np.arange(len(words) - 1))
    assert [words[code] for code in out.tolist()] == values


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.int64])
def test_numbers_become_as_narrow_as_their_place(tmp_path: Path, dtype: Any) -> None:
    file = written(tmp_path, pa.array([*range(200), 7], pa.int32()), nullable=False)
    out = np.empty(201, dtype=dtype)
    pages(file).numbers(out, 0)
    assert out.tolist() == [*range(200), 7]


@pytest.mark.parametrize(
    ("array", "options"),
    [
        pytest.param(pa.array([1.5]), {}, id="doubles"),
        pytest.param(pa.array([[1]]), {}, id="lists"),
        pytest.param(pa.array(["a"]), {"use_dictionary": False}, id="no-dictionary"),
        pytest.param(pa.array([1]), {"compression": "gzip"}, id="gzip"),
        pytest.param(pa.array([1]), {"data_page_version": "2.0"}, id="pages-of-version-2"),
        pytest.param(pa.array([[1, 2]]), {}, id="nested"),
    ],
)
def test_what_we_do_not_write_is_left_to_arrow(tmp_path: Path, array: pa.Array, options: dict[str, Any]) -> None:
    with pytest.raises(STRANGE):
        pages(written(tmp_path, array, **options))


@given(
    st.binary(max_size=80), st.booleans(), st.sampled_from([0, 2, 5, 8]), st.sampled_from([4, 8]), st.integers(0, 70)
)
def test_any_bytes_are_numbers_or_an_error(data: bytes, nullable: bool, encoding: int, width: int, rows: int) -> None:
    words = np.arange(3) if encoding in (2, 8) else None
    given: dict[str, Any] = {
        "nullable": nullable,
        "encoding": encoding,
        "width": width,
        "words": words,
        "absent": ABSENT,
    }
    out = np.empty(rows, dtype=np.int64)
    for what in (
        lambda: _engine.unpack_numbers(np.frombuffer(data, np.uint8), out=out, **given),
        lambda: _engine.unpack_words(np.frombuffer(data, np.uint8), rows),
        lambda: _engine.page_headers(data),
    ):
        try:
            what()
        except ValueError:
            continue


def test_a_code_beyond_the_dictionary_is_an_error() -> None:
    out = np.empty(8, dtype=np.int64)
    given: dict[str, Any] = {"nullable": False, "encoding": 8, "width": 8, "absent": 0, "out": out}
    for body in (bytes([2, 8 << 1, 3]), bytes([2, 3, 0xFF, 0xFF])):  # a run of threes; threes, one by one
        with pytest.raises(ValueError, match="beyond its dictionary"):
            _engine.unpack_numbers(np.frombuffer(body, np.uint8), words=np.arange(3), **given)


def test_a_dictionary_that_claims_more_words_than_it_has_bytes_is_strange() -> None:
    """GIVEN a count of 2**40 in a page header THEN no memory is taken for it."""
    claimed = Page(1 << 40, 0, np.zeros(8, dtype=np.uint8))
    with pytest.raises(Strange):
        Pages(1, 8, False, claimed, []).numbers(np.empty(1, dtype=np.int64), ABSENT)


EVENTS = [
    Event(f"op{row % 5}", row * 10, row * 10 + 5, fields={"stream": row} if row % 3 else {}) for row in range(300)
]


def by_arrow(monkeypatch: pytest.MonkeyPatch, reader: TraceReader) -> Any:
    """The table that a reader gets without pages."""
    with monkeypatch.context() as patched:
        patched.setattr(SegmentFile, "_pages", lambda *_: [])
        return TraceReader(reader.directory).read()


def test_a_trace_is_read_from_its_pages_as_by_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TraceReader(store(table_of(EVENTS), tmp_path / "t", rows=70))
    want, seen = by_arrow(monkeypatch, reader), []
    monkeypatch.setattr("profd.segments.segment.decode_column", lambda spec, *_: seen.append(spec))
    found = reader.read()
    assert not seen
    assert found.columns.keys() == want.columns.keys()
    assert all((found.columns[name] == want.columns[name]).all() for name in want.columns)
    assert found.dictionaries["name"].values == want.dictionaries["name"].values


@pytest.mark.parametrize("column", ["name", "dur", "stream"])
def test_damaged_pages_are_damage_and_never_other_numbers(tmp_path: Path, column: str) -> None:
    reader = TraceReader(store(table_of(EVENTS), tmp_path / "t"))
    segment = reader.directory / reader.segments[0].file
    metadata = pq.ParquetFile(segment).metadata
    (number,) = [at for at in range(metadata.num_columns) if metadata.schema.column(at).name == column]
    chunk = metadata.row_group(0).column(number)
    data = bytearray(segment.read_bytes())
    begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    data[begin + chunk.total_compressed_size - 1] ^= 0x40
    segment.write_bytes(data)
    with pytest.raises(BadTrace, match="is damaged"):
        reader.read()


@pytest.mark.parametrize("column", ["name", "dur", "stream"])
def test_pages_of_a_kind_that_nobody_knows_are_damage(tmp_path: Path, column: str) -> None:
    """Arrow passes over such a page, and a column that it reads alone has no rows then, and no error."""
    reader = TraceReader(
        store(
            table_of([Event(f"op{row % 5}", row, row + 5, fields={"stream": row}) for row in range(9)]), tmp_path / "t"
        )
    )
    segment = reader.directory / reader.segments[0].file
    metadata = pq.ParquetFile(segment).metadata
    (number,) = [at for at in range(metadata.num_columns) if metadata.schema.column(at).name == column]
    chunk = metadata.row_group(0).column(number)
    begin = chunk.data_page_offset
    data = bytearray(segment.read_bytes())
    assert data[begin : begin + 2] == b"\x15\x00"  # the first field: an i32, the kind, which is 0
    data[begin + 1] = 18
    segment.write_bytes(data)
    with pytest.raises(BadTrace, match="is damaged"):
        reader.read()
