"""Formats are told by content; what is refused is named."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from profd.decode.chrome import ChromeDecoder
from profd.decode.open import open_decoder
from profd.decode.shared import Numbers, SharedDictionary, SharedTracks
from profd.decode.sniff import sniff
from profd.errors import BadInput, BadTrace
from profd.events import Dictionary, Tracks


@pytest.mark.parametrize("text", [b"{}", b" \n[", b"\xef\xbb\xbf[]", gzip.compress(b'{"a":1}', mtime=0)])
def test_chrome(text: bytes) -> None:
    assert sniff(io.BytesIO(text)) == "chrome"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"PK\x03\x04....", "zip"),
        (b"PAR1", "Parquet"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd"),
        (b"hello there", "not JSON"),
        (b"\x00\x01\x02", "binary"),
        (gzip.compress(b"hello", mtime=0), "not JSON"),
        (b"\x1f\x8b\xff\xff\xff", "gzip"),
    ],
)
def test_others_are_named(content: bytes, says: str) -> None:
    with pytest.raises(BadTrace, match=says):
        sniff(io.BytesIO(content))


def test_open_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b'[{"ph":"X","ts":1,"dur":1}]')
    fd = os.open(path, os.O_RDONLY)
    try:
        for kind in ("", "chrome"):
            decoder = open_decoder(kind, fd, {}, Tracks())
            assert sum(len(batch.events) for batch in decoder.batches()) == 1
        with pytest.raises(BadInput, match="nsys"):
            open_decoder("nsys", fd, {}, Tracks())
    finally:
        os.close(fd)


def test_numbers_map_only_where_they_differ() -> None:
    import numpy as np

    numbers = Numbers()
    numbers.extend([0])
    own = np.array([0, -1, 0], dtype=np.int32)
    assert numbers.map(own) is own
    numbers.extend([7])
    assert numbers.map(np.array([1, -1, 0], dtype=np.int32)).tolist() == [7, -1, 0]


def test_second_input_shares_strings_and_tracks() -> None:
    dictionaries: dict[str, Dictionary] = {}
    tracks = Tracks()
    for text in (b'[{"ph":"X","ts":1,"name":"a","pid":1,"tid":1}]', b'[{"ph":"X","ts":1,"name":"b","pid":1,"tid":2},'
                 b'{"ph":"X","ts":1,"name":"a","pid":1,"tid":1}]'):  # fmt: skip
        *_, last = ChromeDecoder(io.BytesIO(text), dictionaries, tracks).batches()
    assert last.events.columns["name"].tolist() == [1, 0]
    assert last.events.columns["thread"].tolist() == [1, 0]
    assert dictionaries["name"].values == ["a", "b"]
    assert len(tracks.processes) == 1


def test_shared_views() -> None:
    dictionary = Dictionary(["x"])
    view = SharedDictionary(dictionary)
    view.extend(["y", "x"])
    assert dictionary.values == ["x", "y"]
    tracks = SharedTracks(Tracks())
    assert tracks.process(1) != tracks.process("1")
    assert tracks.thread(0, 1) == tracks.thread(0, 1)
