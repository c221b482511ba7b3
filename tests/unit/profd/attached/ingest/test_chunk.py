"""Headers of chunks, sound and hostile."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.attached.ingest.chunk import HEADER_BYTES, Refusal, split_untrusted
from profd.limits import INGEST_CHUNK_BYTES_MAX, INGEST_CHUNK_EVENTS_MAX

from tests.support.ingest import EPOCH, HEADER, INCARNATION, chunk_bytes


def read(data: bytes):
    return list(split_untrusted(memoryview(data)))


def test_header_has_the_size_of_the_document() -> None:
    assert HEADER_BYTES == HEADER.size == 96


def test_chunks_one_after_the_other() -> None:
    first, second = chunk_bytes(3, 9, events=7), chunk_bytes(4, 1, body=b"")
    one, two = read(first + second)
    assert (one.incarnation, one.epoch, one.stream, one.sequence, one.events) == (INCARNATION, EPOCH, 3, 9, 7)
    assert (one.start, one.end, two.start, two.end) == (0, len(first), len(first), len(first + second))
    assert one.refusal is two.refusal is None


@pytest.mark.parametrize("at", [16, 24, 32, 72, 88, 96, 99])
def test_changed_byte_is_a_crc_refusal_and_the_next_chunk_is_read(at: int) -> None:
    data = bytearray(chunk_bytes() + chunk_bytes(sequence=1))
    data[at] ^= 1
    broken, sound = read(bytes(data))
    assert broken.refusal is Refusal.CRC
    assert sound.refusal is None


@pytest.mark.parametrize("at", [0, 3, 8, 11])
def test_broken_magic_or_length_takes_the_rest_along(at: int) -> None:
    data = bytearray(chunk_bytes() + chunk_bytes(sequence=1))
    data[at] ^= 0x80
    (broken,) = read(bytes(data))
    assert broken.refusal is Refusal.HEADER
    assert broken.end == len(data)


@pytest.mark.parametrize("cut", [1, 50, 95, 96, 97])
def test_torn_chunk(cut: int) -> None:
    (torn,) = read(chunk_bytes(body=b"x" * 50)[:cut])
    assert torn.refusal is Refusal.HEADER


def test_other_version_codec_and_too_many_events() -> None:
    assert read(chunk_bytes(version=2))[0].refusal is Refusal.VERSION
    assert read(chunk_bytes(codec=2))[0].refusal is Refusal.HEADER
    assert read(chunk_bytes(events=INGEST_CHUNK_EVENTS_MAX))[0].refusal is None
    assert read(chunk_bytes(events=INGEST_CHUNK_EVENTS_MAX + 1))[0].refusal is Refusal.HEADER


def test_longest_chunk_and_one_byte_more() -> None:
    longest = chunk_bytes(body=bytes(INGEST_CHUNK_BYTES_MAX - HEADER_BYTES))
    assert read(longest)[0].refusal is None
    assert read(chunk_bytes(body=bytes(INGEST_CHUNK_BYTES_MAX - HEADER_BYTES + 1)))[0].refusal is Refusal.HEADER


@given(st.binary(max_size=400))
def test_property_any_bytes_are_split_without_a_gap(data: bytes) -> None:
    chunks = read(data)
    assert [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])][: len(chunks)]
    assert not chunks or chunks[-1].end == len(data)
    assert all(chunk.events <= INGEST_CHUNK_EVENTS_MAX for chunk in chunks)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.binary(max_size=20)), max_size=5), st.data())
def test_property_a_flipped_bit_never_passes(chunks: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    whole = b"".join(chunk_bytes(stream, sequence, body=body) for stream, sequence, body in chunks)
    if not whole:
        return
    starts = [chunk.start for chunk in read(whole)]
    # Codec and flags stand before what the crc covers: a wrong codec is found when the body is inflated.
    bits = st.integers(0, 8 * len(whole) - 1).filter(lambda bit: all(bit // 8 - at not in (6, 7) for at in starts))
    bit = data.draw(bits)
    broken = bytearray(whole)
    broken[bit // 8] ^= 1 << bit % 8
    before, after = read(whole), read(bytes(broken))
    assert sum(chunk.refusal is None for chunk in after) < len(before)
    # Whatever is still taken is what was sent.
    assert {c for c in after if c.refusal is None} <= set(before)
