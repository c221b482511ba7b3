from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from profd.segments import thrift
from profd.segments.footer import Footer
from profd.segments.parquet import GROUP_ROWS, deltas_are_safe


def file_of(rows: int) -> io.BytesIO:
    file = io.BytesIO()
    table = pa.table(
        {"number": np.arange(rows) * 1000, "word": [f"w{row}" for row in range(rows)], "few": [None] * rows}
    )
    pq.write_table(table, file, row_group_size=7, write_page_checksum=True)
    return file


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 200])
def test_a_footer_is_written_as_it_was_read(rows):
    file = file_of(rows)
    footer, at = Footer.of(file)
    assert footer.encode() == file.getvalue()[at:]
    assert [leaf.name for leaf in footer.leaves] == [b"number", b"word", b"few"]
    whole = file.getvalue()[at:-8]
    assert thrift.encode(thrift.decode(whole)) == whole


@pytest.mark.parametrize("size", range(0, 60, 7))
def test_a_footer_that_was_cut_is_an_error(size):
    file = file_of(20)
    _, at = Footer.of(file)
    with pytest.raises((ValueError, IndexError)):
        thrift.decode(file.getvalue()[at : at + size])


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -129, 2**31, -(2**63), 2**63 - 1])
def test_integers(number):
    struct: thrift.Struct = {1: (thrift.Type.I64, number), 900: (thrift.Type.TRUE, None)}
    assert thrift.decode(thrift.encode(struct)) == struct


@pytest.mark.parametrize(
    ("values", "safe"),
    [
        ([5], False),
        ([5, 6], True),
        (range(128), True),
        (range(129), False),
        ([0, 1 << 22, 0], True),
        ([0, 1 << 25, 0], False),
        ([0, 1 << 40], True),  # one difference spreads over nothing
        ([-(2**63) + 1, 2**62, 0], False),
        ([1, 2, None], True),
        ([None, None], False),
        ([*range(GROUP_ROWS), 7], False),  # of a group of one row
    ],
)
def test_deltas_that_every_reader_gets_right(values, safe):
    absent = -(2**63)
    array = np.array([absent if value is None else value for value in values], dtype=np.int64)
    assert deltas_are_safe(array, absent) is safe
