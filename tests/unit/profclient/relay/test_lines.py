"""Lines that carriers have touched: read whole, or refused with a sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profclient.relay.lines import (
    DATA_BYTES_MAX,
    LINE_BYTES_MAX,
    NOISE_BYTES_MAX,
    OF,
    SHARED_LINE_BYTES_MAX,
    Garbled,
    Reader,
    Sorter,
    Writer,
)


def read(*pieces: bytes) -> list[tuple[str, int, bytes]]:
    reader = Reader()
    return [(line.kind, line.stream, line.payload) for piece in pieces for line in reader.feed(piece)]


def written(*payloads: bytes) -> bytes:
    writer = Writer()
    return b"".join(writer.line("data", at, payload) for at, payload in enumerate(payloads))


@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 40))
def test_property_what_is_written_is_read_however_it_is_cut(payloads, size):
    data = written(*payloads)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert read(*pieces) == [("data", at, payload) for at, payload in enumerate(payloads)]


def test_the_longest_payload_fits_a_line():
    line = written(bytes(DATA_BYTES_MAX))
    assert len(line) <= LINE_BYTES_MAX
    with pytest.raises(ValueError, match="too many"):
        written(bytes(DATA_BYTES_MAX + 1))


def test_banners_are_noise_also_without_an_end_of_line():
    reader = Reader()
    lines = list(reader.feed(b"Welcome to node1\r\n\nlast login: " + written(b"x").replace(b"\n", b"\r\n")))
    assert [line.payload for line in lines] == [b"x"]
    assert list(reader.noise) == [b"Welcome to node1\r", b"last login: "]


@pytest.mark.parametrize(
    ("damaged", "why"),
    [
        (lambda data: data[:20] + b"\n" + data[20:], "cut"),
        (lambda data: data[:30] + data[31:], "cut"),
        (lambda data: data.replace(b"data", b"date", 1), "cut"),
        (lambda data: data.split(b"\n", 1)[1], "missing"),
        (lambda data: data.split(b"\n")[0] + b"\n" + data, "missing"),
        (lambda data: b"@profd1 " + b"x" * (LINE_BYTES_MAX + 1), "longer"),
    ],
)
def test_a_line_that_is_not_whole_ends_the_conversation(damaged, why):
    with pytest.raises(Garbled, match=why):
        read(damaged(written(b"one", b"two")))


@given(st.binary(max_size=400))
def test_property_no_bytes_do_anything_else(untrusted):
    reader = Reader()
    try:
        list(reader.feed(b"@profd1 " + untrusted))
        reader.end()
    except Garbled:
        pass


def test_a_last_line_that_is_cut_is_told():
    reader = Reader()
    list(reader.feed(written(b"whole") + b"@profd1 1 da"))
    with pytest.raises(Garbled, match="cut"):
        reader.end()


def test_noise_without_an_end_is_neither_held_nor_heard_for_ever():
    reader = Reader()
    with pytest.raises(Garbled, match="MiB"):  # noqa: PT012 - one of the pieces is one too many
        for _ in range(10 * NOISE_BYTES_MAX // 65536):
            list(reader.feed(b"x" * 65536))
            assert len(reader._rest) <= LINE_BYTES_MAX


def test_one_of_another_version_is_told():
    line = Writer().line("hello")
    import zlib

    body = line.rsplit(b" ", 1)[0].replace(b"hello", b"salve")
    with pytest.raises(Garbled, match="another version"):
        read(b"%s %08x\n" % (body, zlib.crc32(body)))


def test_lines_with_addresses_fit_what_srun_carries_whole():
    writer = Writer(b"n" * 253)
    writer._number = 10**9
    assert len(writer.line("close", 1 << 30, bytes(writer.payload_bytes_max))) <= SHARED_LINE_BYTES_MAX


@given(st.lists(st.tuples(st.sampled_from([b"n1", b"n2"]), st.binary(max_size=90)), max_size=8), st.integers(1, 40))
def test_property_lines_are_told_apart_by_their_addresses(said, size):
    writers = {name: Writer(name) for name in (b"n1", b"n2")}
    data = b"banner\n" + b"".join(writers[name].line("data", 0, payload) for name, payload in said)
    sorter, readers = Sorter(OF), {name: Reader() for name in writers}
    heard = [
        (name, one.payload)
        for at in range(0, len(data), size)
        for name, line in sorter.feed(data[at : at + size])
        for one in readers[name].feed(line + b"\n")
    ]
    assert heard == said


def test_noise_between_lines_with_addresses_has_an_end():
    for noise in (b"x" * 70_000, b"hello\n" * 20_000):
        with pytest.raises(Garbled, match="no lines of relays"):
            list(Sorter(OF, noise_bytes_max=65_536).feed(noise))
