"""The door's reader of frames, against a slow twin."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd._host import FrameReader

from tests.support import http2

streams = st.integers(0, 2**31 - 1)
first = st.builds(http2.frame, st.just(http2.SETTINGS), st.integers(0, 255), streams, st.binary(max_size=40))
flags = st.integers(0, 255)
plain = flags.map(lambda some: some & ~(http2.PADDED | http2.PRIORITY))  # of headers


def header_block(stream: int, pieces: list[bytes], flags: int) -> bytes:
    """HEADERS, and CONTINUATION for the rest; the last one says so."""
    kinds = [http2.HEADERS, *[http2.CONTINUATION] * (len(pieces) - 1)]
    last = len(pieces) - 1
    ends = [flags | http2.END_HEADERS if at == last else flags & ~http2.END_HEADERS for at in range(len(pieces))]
    return b"".join(http2.frame(kind, end, stream, piece) for kind, end, piece in zip(kinds, ends, pieces, strict=True))


headers = st.builds(
    header_block, st.integers(1, 2**31 - 1), st.lists(st.binary(max_size=60), min_size=1, max_size=4), plain
)
of_blocks = (http2.HEADERS, http2.CONTINUATION)
others = st.builds(
    *(http2.frame, st.integers(0, 255).filter(lambda kind: kind not in of_blocks), flags, streams),
    st.binary(max_size=300),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(at)]


def read(pieces: list[bytes]) -> list[tuple[int, int, int, int]]:
    reader = FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


@given(first, st.lists(st.one_of(headers, others), max_size=20), st.lists(st.integers(0, 10**6), max_size=30))
def test_frames_property_cut_anywhere(begin: bytes, rest: list[bytes], places: list[int]) -> None:
    sent = b"".join([begin, *rest])
    assert read(cut(http2.PREFACE + sent, places)) == http2.frames(sent)


def test_a_byte_at_a_time() -> None:
    sent = http2.frame(http2.SETTINGS) + http2.call("/x", 1) + http2.frame(http2.DATA, 1, 1, b"abc")
    assert read([bytes([byte]) for byte in http2.PREFACE + sent]) == http2.frames(sent)


def test_the_reserved_bit_of_a_stream_is_none_of_its_number() -> None:
    reader = FrameReader()
    sent = http2.BEGIN + b"\x00\x00\x00\x01\x04\x80\x00\x00\x07"
    assert reader.feed(sent)[-1] == (0, http2.HEADERS, http2.END_HEADERS, 7)


@given(st.binary(max_size=60))
def test_foreign_bytes_fuzz(data: bytes) -> None:
    # GIVEN anything: THEN it is read or refused, and only what begins as it must is read
    reader = FrameReader()
    try:
        reader.feed(data)
    except ValueError:
        assert not http2.BEGIN.startswith(data)
    else:
        assert data.startswith(http2.PREFACE) or http2.PREFACE.startswith(data)


@given(st.binary(max_size=400), st.lists(st.integers(0, 10**6), max_size=10))
def test_whatever_follows_the_preface_fuzz(data: bytes, places: list[int]) -> None:
    # Whole or cut, it comes to the same.
    def outcome(pieces: list[bytes]) -> object:
        try:
            return read(pieces)
        except ValueError:
            return "foreign"

    assert outcome([http2.BEGIN + data]) == outcome(cut(http2.BEGIN + data, places))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        http2.PREFACE + http2.frame(http2.DATA, 0, 1, b"x"),
        http2.PREFACE + http2.call("/x", 1),
        http2.BEGIN + http2.frame(http2.HEADERS, 4, 0, b"x"),
        http2.BEGIN + http2.frame(http2.CONTINUATION, 4, 1, b"x"),
        http2.BEGIN + http2.call("/x", 1) + http2.frame(http2.CONTINUATION, 4, 1, b"x"),
        http2.BEGIN + http2.call("/x", 1, flags=0) + http2.frame(http2.PING, 0, 0, bytes(8)),
        http2.BEGIN + http2.call("/x", 1, flags=0) + http2.call("/x", 3),
        http2.BEGIN + http2.call("/x", 1, flags=0) + http2.frame(http2.CONTINUATION, 4, 3, b"x"),
    ],
)
def test_what_is_no_http2(sent: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP/2"):
        FrameReader().feed(sent)


def number(first: int, bits: int, value: int) -> bytes:
    """An integer of HPACK (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    rest, said = value - most, bytes([first | most])
    while rest >= 0x80:
        rest, said = rest >> 7, said + bytes([rest & 0x7F | 0x80])
    return said + bytes([rest])


texts = st.builds(
    lambda squeezed, text: number(0x80 if squeezed else 0, 7, len(text)) + text,
    *(st.booleans(), st.one_of(st.binary(max_size=8), st.integers(120, 300).map(bytes))),
)
known = st.integers(1, 10_000).map(lambda index: number(0x80, 7, index))
sizes = st.integers(0, 4096).map(lambda size: number(0x20, 5, size))
kinds = st.sampled_from([(0x40, 6), (0x00, 4), (0x10, 4)])  # kept, not kept, never
named = st.builds(lambda kind, index, value: number(kind[0], kind[1], index) + value, kinds, st.integers(1, 300), texts)
spelled = st.builds(lambda kind, name, value: number(kind[0], kind[1], 0) + name + value, kinds, texts, texts)
fields = st.lists(st.one_of(known, sizes, named, spelled), min_size=1, max_size=12)
places = st.lists(st.integers(0, 10**6), max_size=8)


def most_fields(pieces: list[bytes]) -> int:
    reader = FrameReader()
    for piece in pieces:
        reader.feed(piece)
    return reader.most_fields


@given(st.lists(fields, min_size=1, max_size=3), places, places, st.booleans())
def test_fields_property_of_frames_and_pieces_cut_anywhere(
    blocks: list[list[bytes]], frames_at: list[int], pieces_at: list[int], priority: bool
) -> None:
    sent = http2.BEGIN
    for at, block in enumerate(blocks):
        first, *more = cut(b"".join(block), frames_at)
        pieces = [bytes(5) + first if priority else first, *more]
        sent += header_block(2 * at + 1, pieces, http2.PRIORITY if priority else 0) + http2.frame(
            http2.DATA, 0, 1, b"x"
        )
    assert most_fields(cut(sent, pieces_at)) == max(map(len, blocks))


def test_a_number_without_an_end_is_more_than_any_block_may_have() -> None:
    for endless in (b"\xff" + b"\x80" * 9, b"\x00\x01a\x7f" + b"\xff" * 9):
        assert most_fields([http2.BEGIN + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, endless)]) > 1 << 32


def test_headers_with_padding_are_none_of_a_client_of_grpc() -> None:
    reader = FrameReader()
    with pytest.raises(ValueError, match="no HTTP/2"):
        reader.feed(http2.BEGIN + http2.frame(http2.HEADERS, http2.PADDED, 1, b"\x00\x82"))


def test_a_priority_that_goes_on_in_the_next_frame_is_refused() -> None:
    """gRPC would take it from there, and read other fields than were counted."""
    reader = FrameReader()
    with pytest.raises(ValueError, match="no HTTP/2"):
        reader.feed(http2.BEGIN + http2.frame(http2.HEADERS, http2.PRIORITY, 1, bytes(3)))
