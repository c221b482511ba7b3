"""The native encoder against what the slots say, read by the twin that knows only docs/wire-format.md."""

from __future__ import annotations

import os
import random
import struct
from contextlib import closing
from typing import Any

import pytest
from backports import zstd
from hypothesis import given
from profclient._recorder import Drainer

from tests.support import arena_writer as arena
from tests.support import chunk_cases as cases
from tests.support import chunk_twin as twin
from tests.support.arena_writer import Chunk, Slot, Strings, arena_fd
from tests.support.encoding import drainer, encoded


def compress(body: bytes) -> bytes:
    return zstd.compress(body, 1)


def only(chunks: list[Chunk], strings: Strings | None = None, **header: Any) -> twin.Chunk:
    """The one chunk there is."""
    ((head, body),) = twin.split(encoded(chunks, strings, **header))
    return twin.read_chunk(head, body)


@given(cases.chunks())
def test_property_round_trip(made: tuple[list[Chunk], Strings]) -> None:
    chunks, strings = made
    events = twin.read_file(encoded(chunks, strings))
    assert [cases.view(event) for event in events] == [cases.view(event) for event in cases.expected(chunks, strings)]


@given(cases.chunks())
def test_compressed_bodies_are_the_same_events(made: tuple[list[Chunk], Strings]) -> None:
    chunks, strings = made
    events = twin.read_file(encoded(chunks, strings, compressor=compress))
    assert [cases.view(event) for event in events] == [cases.view(event) for event in cases.expected(chunks, strings)]


def test_header_says_what_the_arena_says() -> None:
    strings = Strings()
    chunk = Chunk(
        [Slot(1100, 1200), Slot(1300, 0, kind=arena.INSTANT)],
        stream=5,
        sequence=9,
        tid=77,
        thread_name=strings.id("main"),
        id_base=4097,
    )
    ((header, _),) = twin.split(encoded([chunk], strings, incarnation=0x1122334455667788, epoch=3))
    assert {name: header[name] for name in header if name not in ("crc", "length", "body_bytes", "error")} == {
        "magic": twin.MAGIC,
        "version": 1,
        "codec": 0,
        "flags": 0,
        "incarnation": 0x1122334455667788,
        "stream": 5,
        "tid": 77,
        "sequence": 9,
        "id_base": 4097,
        "base": 1000,
        "real": 5000,
        "pid": 4242,
        "events": 2,
        "slots": 2,
        "thread_name": strings.id("main"),
        "epoch": 3,
    }


class TestClock:
    def ticking(
        self, *slots: Slot, opened: arena.Anchor, sealed: arena.Anchor, state: int = arena.SEALED, **header: Any
    ) -> Any:
        chunk = Chunk(list(slots), opened=opened, sealed=sealed, state=state)
        with closing(drainer(arena_fd([chunk], clock=arena.TSC, **header))) as reader:
            data = reader.encode(0, open=True)
        assert data is not None
        ((head, body),) = twin.split(data)
        return head, twin.read_chunk(head, body).events

    def test_an_event_at_an_anchor_has_that_anchors_time(self) -> None:
        # GIVEN a clock of 2.7 GHz that is off by a few ppm, so that no ratio is round
        opened = (10**15 + 7, 5_000_000_000_001, 1_700_000_000_000_000_003)
        for ns in (1, 999, 1_000_003, 3_999_999_937):
            ticks = ns * 2_700_007 // 1_000_000
            sealed = (opened[0] + max(1, ticks), opened[1] + ns, opened[2] + ns)
            slots = [Slot(opened[0], sealed[0]), Slot(sealed[0], 0, kind=arena.INSTANT)]
            _, (span, mark) = self.ticking(*slots, opened=opened, sealed=sealed)
            assert (span.start, span.end) == (opened[2], sealed[2])
            assert mark.start == sealed[2]

    def test_between_anchors_time_is_in_proportion(self) -> None:
        opened, sealed = (3000, 1000, 50_000), (9000, 3000, 52_000)
        _, events = self.ticking(*(Slot(ticks, ticks) for ticks in range(3000, 9001, 3)), opened=opened, sealed=sealed)
        assert [event.start for event in events] == list(range(50_000, 52_001))

    def test_before_the_chunk_the_longer_rate_holds(self) -> None:
        # A range that was open when recording began starts before the chunk that holds it.
        opened, sealed = (3_000_000_000, 1_000_000_000, 1_000_000_000), (3_000_000_300, 1_000_000_200, 1_000_000_200)
        armed, latest = (0, 0, 0), (30_000_000_000, 10_000_000_000, 10_000_000_000)
        _, (event,) = self.ticking(
            Slot(1_500_000_000, 3_000_000_000, flags=arena.OPEN_AT_START),
            opened=opened,
            sealed=sealed,
            armed=armed,
            latest=latest,
        )
        assert (event.start, event.end) == (500_000_000, 1_000_000_000)

    def test_an_open_chunk_uses_the_arenas_anchors(self) -> None:
        armed, latest = (0, 0, 10**18), (2_000_000_000, 1_000_000_000, 10**18 + 1_000_000_000)
        opened = (1_000_000_000, 500_000_000, 10**18 + 500_000_000)
        header, (event,) = self.ticking(
            Slot(1_500_000_000, 1_600_000_000),
            opened=opened,
            sealed=arena.NO_ANCHOR,
            state=arena.OPEN,
            armed=armed,
            latest=latest,
        )
        assert (event.start - header["real"], event.end - header["real"]) == (250_000_000, 300_000_000)
        assert header["flags"] == 1
        assert 0 < header["error"] < 1000

    def test_an_anchor_that_was_read_late_shows_as_error(self) -> None:
        # GIVEN a chunk whose thread lost the CPU for 5 ms between the two clocks of its last anchor
        armed, latest = (0, 0, 0), (10**10, 10**10, 10**10)
        opened, sealed = (10**9, 10**9, 10**9), (10**9 + 1_000_000, 10**9 + 6_000_000, 10**9 + 6_000_000)
        header, _ = self.ticking(Slot(10**9, 10**9 + 5), opened=opened, sealed=sealed, armed=armed, latest=latest)
        assert 5_000_000 <= header["error"] < 5_001_000

    @pytest.mark.parametrize("sealed", [(0, 0, 0), (5, 900, 900), (1 << 63, 1 << 63, 0), (3000, 1 << 62, 0)])
    def test_senseless_anchors_are_not_used(self, sealed: arena.Anchor) -> None:
        _, (event,) = self.ticking(
            Slot(4000, 5000), opened=(1000, 1000, 1000), sealed=sealed, armed=(0, 0, 0), latest=(10**9, 10**9, 0)
        )
        assert (event.start, event.end) == (4000, 5000)


class TestHostile:
    def test_a_descriptor_that_is_no_sealed_arena_is_refused(self) -> None:
        for descriptor in (arena_fd([], seals=0), os.open("/dev/null", os.O_RDWR), os.memfd_create("plain")):
            with pytest.raises(ValueError, match="sealed memory file"):
                drainer(descriptor)

    @pytest.mark.parametrize(
        ("at", "data", "problem"),
        [
            (0, b"NOTARENA", "does not begin"),
            (8, struct.pack("<I", 9), "version 9"),
            (12, struct.pack("<I", 64), "another size"),
            (16, struct.pack("<Q", 1 << 40), "states another size"),
            (44, struct.pack("<I", 7), "clock"),
            (48, struct.pack("<Q", 0), "lie where they cannot"),
            (56, struct.pack("<Q", 1 << 60), "lie where they cannot"),
            (64, struct.pack("<Q", 1 << 63), "strings reach beyond"),
            (72, struct.pack("<Q", (1 << 64) - 4096), "lie where they cannot"),
            (80, struct.pack("<I", 1 << 31), "lie where they cannot"),
            (84, struct.pack("<I", 4096), "another size"),
        ],
    )
    def test_headers_that_lie_are_refused(self, at: int, data: bytes, problem: str) -> None:
        with pytest.raises(ValueError, match=problem):
            drainer(arena_fd([], header={at: data}))

    def test_slots_that_make_no_sense_are_counted_and_the_others_kept(self) -> None:
        chunk = Chunk(
            [
                Slot(1100, 1200),
                Slot(1100, 1200, kind=0),
                Slot(1100, 1200, kind=200),
                Slot(1 << 63, 1200),
                Slot(1100, 1200, flags=arena.BACKEND),  # without the times it should bring
                Slot(1300, 1400),
            ]
        )
        found = only([chunk])
        assert [event.start for event in found.events if event.kind] == [5100, 5300]
        assert found.losses == {"bad_slot": 4}
        assert found.header["events"] == 2

    def test_extensions_beyond_the_count_end_the_chunk(self) -> None:
        data = Slot(1100, 1200).pack() + bytearray(Slot(1300, 1400).pack())
        data = data[: 32 + 23] + b"\xff" + data[32 + 24 :]
        found = only([Chunk(data=bytes(data))])
        assert [event.start for event in found.events if event.kind] == [5100]
        assert found.losses == {"bad_slot": 1}

    def test_extensions_that_make_no_sense_leave_the_event(self) -> None:
        bad = [
            [(99, b"")],
            [(arena.EXT_MODULE, b"\0")],
            [(arena.EXT_MODULE, struct.pack("<I", 1 << 30))],
            [(arena.EXT_MEMORY, b"1234")],
            [(arena.EXT_TENSORS, b"12345678")],
            [(arena.EXT_ARGS, b"{}"), (arena.EXT_ARGS, b"{}")],
        ]
        found = only([Chunk([Slot(1100 + at, 1100 + at, records=records) for at, records in enumerate(bad)])])
        assert len(found.events) == len(bad)
        assert found.losses == {"bad_attribute": len(bad)}
        assert [event.attributes for event in found.events] == [{}, {}, {}, {}, {}, {twin.ARGS: b"{}"}]

    def test_a_record_longer_than_its_extension_is_not_followed(self) -> None:
        data = bytearray(Slot(1100, 1200, records=[(arena.EXT_ARGS, b"{}")]).pack())
        data[34:36] = b"\xff\xff"
        found = only([Chunk(data=bytes(data))])
        assert found.losses == {"bad_attribute": 1}

    def test_names_beyond_the_published_strings_are_no_names(self) -> None:
        strings = Strings()
        known = strings.id("known")
        found = only(
            [Chunk([Slot(1100, 1200, known), Slot(1300, 1400, 1 << 20), Slot(1500, 1600, 0xFFFFFFFF)])], strings
        )
        assert [found.name_ids[event.slot] for event in found.events] == [known, 0, 0]
        assert found.losses == {"bad_attribute": 2}

    def test_a_string_whose_length_lies_is_left_out(self) -> None:
        strings = Strings()
        name = strings.id("x" * 40)
        strings.area[name * 8 : name * 8 + 4] = struct.pack("<I", 0xFFFFFFF0)
        assert only([Chunk([Slot(1100, 1200, name)])], strings).strings == {}

    @pytest.mark.parametrize("broken", [{"count": arena.SLOTS_PER_CHUNK + 1}, {"count": 0xFFFFFFFF}, {"id_base": 0}])
    def test_a_chunk_beyond_use_is_counted(self, broken: dict[str, Any]) -> None:
        with closing(drainer(arena_fd([Chunk([Slot(1100, 1200)], **broken)]))) as reader:
            assert reader.encode(0) is None
            assert reader.losses() == {"bad_chunk": 1}

    def test_what_nobody_has_written_is_not_allocated_by_a_look(self) -> None:
        """The kernel charges a page to whoever touches it first: here that would be the reader."""
        claiming = [Chunk(stream=stream, count=arena.SLOTS_PER_CHUNK, data=b"") for stream in range(20)]
        far_apart = range(0, arena.STRINGS_BYTES // 8, arena.PAGE // 8)
        naming = Chunk([Slot(1100, 1200, name=text) for text in far_apart], stream=20)
        fd = arena_fd([*claiming, naming], header={152: struct.pack("<Q", arena.STRINGS_BYTES)})
        try:
            os.pwrite(fd, struct.pack("<I", arena.SEALED) * 24, arena.PAGE)  # the last have no header
            before = os.fstat(fd).st_blocks
            with closing(Drainer(fd)) as reader:
                found = [reader.encode(index) for index, _, _ in reader.sealed()]
            assert sum(chunk is not None for chunk in found) == 21
            assert os.fstat(fd).st_blocks == before
        finally:
            os.close(fd)

    def test_many_long_names_are_cut_to_fit(self) -> None:
        strings = Strings()
        names = [strings.id(f"{number:05}" + "n" * 2000) for number in range(100)] + [strings.id("short")]
        strings_max = arena.STRINGS_BYTES
        assert len(strings.area) < strings_max
        found = only([Chunk([Slot(1100, 1200, name) for name in names])], strings)
        assert found.losses == {}
        assert len(found.strings) == 101

    def test_what_a_chunk_holds_at_most_fits_a_mebibyte(self) -> None:
        # GIVEN the slots that take most room: times far apart, ids at their largest, an argument text each
        far = [Slot(1000 + (at % 2) * (1 << 50), 1, kind=arena.ALLOC, payload=-(1 << 62)) for at in range(1000)]
        each = [
            Slot(1100, 1, kind=arena.OP, payload=(1 << 64) - 1, records=[(arena.EXT_ARGS, b'{"key": %d}' % at)])
            for at in range(500)
        ]
        data = encoded([Chunk(far + each)])
        assert len(data) < 1 << 20
        assert len(twin.read_file(data)) == 1500

    @pytest.mark.parametrize("seed", range(30))
    def test_any_bytes_become_a_chunk_that_can_be_read(self, seed: int) -> None:
        noise = random.Random(seed).randbytes(60_000) if seed < 5 else _noise(seed)
        ((header, body),) = twin.split(encoded([Chunk(data=noise)], clock=seed % 2))
        found = twin.read_chunk(header, body)
        readable = [event for event in found.events if event.kind not in (0, twin.PATCH, twin.THREAD)]
        assert header["events"] == len(readable)


def _noise(seed: int) -> bytes:
    """Slots with random fields that are often plausible."""
    random_ = random.Random(seed)
    data = b""
    while len(data) < 40_000:
        fields = [random_.choice((0, 1000 + len(data), random_.getrandbits(64))) for _ in range(2)]
        data += struct.pack(
            "<QQIBBBBQ",
            *fields,
            random_.choice((0, random_.getrandbits(32))),
            random_.choice((1, 2, 3, 8, 10, 11, 13, random_.getrandbits(8))),
            random_.choice((0, 1, 8, random_.getrandbits(8))),
            random_.getrandbits(8),
            random_.choice((0, 0, 0, 1, 3, random_.getrandbits(8))),
            random_.getrandbits(64),
        )
    return data


class TestDraining:
    def test_sealed_chunks_are_named_in_the_order_of_their_streams(self) -> None:
        chunks = [
            Chunk([], stream=2, sequence=0),
            Chunk([], stream=1, sequence=5),
            Chunk([], stream=1, sequence=4),
            Chunk([], state=arena.OPEN),
            Chunk([], state=arena.FREE),
        ]
        with closing(drainer(arena_fd(chunks))) as reader:
            assert reader.sealed() == [(2, 1, 4), (1, 1, 5), (0, 2, 0)]
            assert reader.open_chunks() == [(3, 0, 0)]

    def test_free_gives_a_chunk_back_and_says_so(self) -> None:
        descriptor = arena_fd([Chunk([Slot(1100, 1200)]), Chunk([Slot(1100, 1200)], state=arena.OPEN)])
        with closing(Drainer(descriptor)) as reader:
            reader.free(0)
            reader.free(1)
            assert reader.sealed() == reader.open_chunks() == []
            states = struct.unpack("<II", os.pread(descriptor, 8, arena.PAGE))
            assert states == (arena.FREE, arena.OPEN)
            assert struct.unpack("<Q", os.pread(descriptor, 8, 160)) == (1,)
        os.close(descriptor)

    def test_open_chunks_are_taken_only_when_asked_for(self) -> None:
        with closing(drainer(arena_fd([Chunk([Slot(1100, 1200)], state=arena.ORPHAN)]))) as reader:
            assert reader.encode(0) is None
            data = reader.encode(0, open=True)
            assert data is not None
            assert twin.split(data)[0][0]["flags"] == 1

    def test_an_empty_sealed_chunk_travels_so_that_no_number_is_missing(self) -> None:
        assert only([Chunk([])]).events == []

    def test_strings_come_until_a_chunk_with_them_is_acked(self) -> None:
        strings = Strings()
        both, late = strings.id("both"), strings.id("late")
        slots = [[Slot(1100, 1200, both)], [Slot(1100, 1200, both)], [Slot(1100, 1200, both), Slot(1300, 1400, late)]]
        chunks = [Chunk(each, sequence=number) for number, each in enumerate(slots)]

        def brought(reader: Drainer, index: int) -> dict[int, str]:
            data = reader.encode(index)
            assert data is not None
            ((header, body),) = twin.split(data)
            return twin.read_chunk(header, body).strings

        with closing(drainer(arena_fd(chunks, strings))) as reader:
            assert brought(reader, 0) == {both: "both"}
            assert brought(reader, 1) == {both: "both"}  # nobody has acked the first
            reader.free(0)
            assert brought(reader, 2) == {late: "late"}
            assert brought(reader, 1) == {}

    def test_what_the_target_lost_has_names(self) -> None:
        with closing(drainer(arena_fd([], lost=(3, 0, 1, *[0] * 12, 9), recorded=44))) as reader:
            assert reader.losses() == {"arena_full": 3, "too_large": 1, "reason_15": 9}
            assert reader.recorded == 44

    def test_after_close_it_says_so(self) -> None:
        reader = drainer(arena_fd([]))
        reader.close()
        reader.close()
        assert reader.pid == 4242
        with pytest.raises(ValueError, match="closed"):
            reader.sealed()
        with pytest.raises(ValueError, match="closed"):
            _ = reader.recording

    def test_indices_are_checked(self) -> None:
        with closing(drainer(arena_fd([]))) as reader:
            for call in (reader.encode, reader.free):
                with pytest.raises(IndexError, match="chunks"):
                    call(10_000)

    def test_a_compressor_that_does_not_return_bytes_is_named(self) -> None:
        reader = drainer(arena_fd([Chunk([Slot(1100, 1200)])]), lambda body: None)
        with closing(reader), pytest.raises(TypeError, match="NoneType"):
            reader.encode(0)
