"""The XSpace of an answer goes to a file as protobuf would read it, and is not copied before."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from profd.sources.jax.answer import write
from profd.sources.jax.service import ServiceFailed
from profproto.profiler import profiler_pb2 as pb

MiB = 1 << 20


def kept(answer: bytes, folder: Path) -> bytes | None:
    """What is in the file; None: there is none."""
    file = folder / "answer.pb"
    file.unlink(missing_ok=True)
    size = write(answer, file)
    assert size == (file.stat().st_size if file.exists() else 0)
    return file.read_bytes() if file.exists() else None


def read(answer: bytes) -> bytes | None:
    """The same by protobuf's own parser."""
    response = pb.ProfileResponse.FromString(answer)
    return None if response.empty_trace or not response.xspace else response.xspace


FIELDS = st.one_of(
    st.builds(lambda space, empty: pb.ProfileResponse(xspace=space, empty_trace=empty).SerializeToString(),
              st.binary(max_size=300), st.booleans()),
    st.sampled_from([b"\x32\x03abc", b"\x48\x96\x01", b"\x51" + bytes(8), b"\x5d" + bytes(4)]),  # unknown ones
    st.binary(max_size=12),
)  # fmt: skip


@given(st.lists(FIELDS, max_size=6).map(b"".join))
def test_it_is_read_as_protobuf_reads_it(tmp_path_factory: pytest.TempPathFactory, answer: bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        wanted = read(answer)
    except DecodeError:
        with pytest.raises(ServiceFailed):
            kept(answer, folder)
        return
    try:
        assert kept(answer, folder) == wanted
    except ServiceFailed:  # groups, which no server sends
        assert any(byte & 7 in (3, 4) for byte in answer)


@pytest.mark.parametrize("answer", [b"\x42\x05abc", b"\x42", b"\x80" * 11, b"\x00\x00", b"\x43", b"\x48\x00" * 2000])
def test_what_is_none_is_said_to_be(tmp_path: Path, answer: bytes) -> None:
    with pytest.raises(ServiceFailed, match="not a ProfileResponse"):
        kept(answer, tmp_path)


def test_a_large_one_is_not_copied(tmp_path: Path) -> None:
    answer = pb.ProfileResponse(xspace=b"x" * (8 * MiB)).SerializeToString()
    tracemalloc.start()
    try:
        assert write(answer, tmp_path / "answer.pb") == 8 * MiB
        assert tracemalloc.get_traced_memory()[1] < MiB
    finally:
        tracemalloc.stop()
