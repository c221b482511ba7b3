"""Datagrams: what libkineto sends is understood, everything else is named and dropped."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from profd import limits
from profd.sources.kineto import wire
from profd.sources.kineto.wire import Context, Malformed, Poll

from tests.support.kineto_client import config_of

# As torch 2.13 sent it: three pids, no job.
REAL = struct.pack("=Q32s", 28, b"req") + struct.pack("=iiqiii", 3, 3, 0, 15, 13, 12)


def slow_twin(data: bytes) -> Poll | Context | Malformed:
    """The same by hand, a byte at a time."""
    if len(data) > limits.KINETO_DATAGRAM_BYTES_MAX:
        return Malformed.OVERSIZED
    if len(data) < 40:
        return Malformed.SHORT
    number = lambda at, size, signed=True: int.from_bytes(data[at : at + size], "little", signed=signed)  # noqa: E731
    if number(0, 8, signed=False) != len(data) - 40:
        return Malformed.SIZE_FIELD
    name = bytearray()
    for byte in data[8:40]:
        if byte == 0:
            break
        name.append(byte)
    if name == b"ctxt":
        return Context(number(40, 4), number(48, 8)) if len(data) == 56 else Malformed.PAYLOAD
    if name != b"req":
        return Malformed.TYPE
    if len(data) < 56 or not 0 <= number(44, 4) <= limits.KINETO_PIDS_MAX:
        return Malformed.PAYLOAD
    if len(data) != 56 + 4 * number(44, 4):
        return Malformed.PAYLOAD
    pids = tuple(number(56 + 4 * i, 4) for i in range(number(44, 4)))
    return Poll(number(40, 4), number(48, 8), pids)


def framed(kind: bytes, payload: bytes, size: int | None = None) -> bytes:
    return struct.pack("=Q32s", len(payload) if size is None else size, kind) + payload


ints = st.integers(-(2**31), 2**31 - 1)
almost = st.builds(
    framed,
    st.sampled_from([b"req", b"ctxt", b"rex", b""]),
    st.one_of(
        st.binary(max_size=80),
        st.builds(
            lambda mask, count, job, pids: struct.pack("=iiq", mask, count, job) + struct.pack(f"={len(pids)}i", *pids),
            ints,
            st.integers(-2, 70),
            st.integers(-(2**63), 2**63 - 1),
            st.lists(ints, max_size=70),
        ),
    ),
    st.one_of(st.none(), st.integers(0, 2**64 - 1)),
)


@given(st.one_of(st.binary(max_size=120), almost))
@example(b"")
@example(REAL)
@example(REAL[:-1])
@example(REAL + b"\0")
@example(framed(b"ctxt", struct.pack("=iiq", 1, 2, 3)))
@example(framed(b"req", b"", 2**62))
@example(b"x" * (limits.KINETO_DATAGRAM_BYTES_MAX + 1))
def test_parse_agrees_with_the_slow_twin(data: bytes) -> None:
    assert wire.parse_untrusted(data) == slow_twin(data)


def test_parse_real_poll() -> None:
    assert wire.parse_untrusted(REAL) == Poll(3, 0, (15, 13, 12))
    assert wire.poll(3, 0, (15, 13, 12)) == REAL


@pytest.mark.parametrize(("mask", "takes"), [(3, True), (2, True), (1, False), (0, False)])
def test_mask_of_both_generations(mask: int, takes: bool) -> None:
    assert Poll(mask, 0, ()).takes_config is takes


@given(st.text(alphabet=st.characters(max_codepoint=127), max_size=200))
def test_reply_is_exact_and_never_empty(text: str) -> None:
    datagram = wire.reply(text)
    assert len(datagram) == 40 + len(text)
    assert struct.unpack_from("=Q32s", datagram) == (len(text), b"req".ljust(32, b"\0"))
    assert config_of(datagram) == text


@pytest.mark.parametrize("text", ["ü", "x" * (limits.KINETO_CONFIG_BYTES_MAX + 1)])
def test_reply_refuses_what_a_client_cannot_take(text: str) -> None:
    with pytest.raises(ValueError, match="config"):
        wire.reply(text)


def test_context_reply() -> None:
    assert wire.context_reply(7) == framed(b"ctxt", struct.pack("=i", 7))
