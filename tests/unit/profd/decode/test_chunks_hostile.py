"""Event chunks from whoever: cut, broken, replayed, reordered, mutated, inflated."""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import Any

import pytest
from backports import zstd
from hypothesis import example, given
from hypothesis import strategies as st
from profd import limits
from profd.decode import chunks
from profd.errors import BadTrace, Exhausted

from tests.support import arena_writer as arena
from tests.support import chunk_cases as cases
from tests.support import chunk_twin as twin
from tests.support.arena_writer import Chunk, Slot, Strings
from tests.support.encoding import encoded
from tests.unit.profd.decode.test_chunks import HEADER, decoded, decoder


def chunk(sequence: int = 0, at: int = 0, **header: int) -> bytes:
    """A chunk with one range, `at` ns after the base time."""
    event = twin.Event(0, 1, f"range {sequence}", start=cases.REAL + at, end=cases.REAL + at + 5)
    return twin.write_chunk({**HEADER, "sequence": sequence, **header}, [event])


def names(found: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in found]


def patched(data: bytes, at: int, value: bytes) -> bytes:
    """Other bytes in a chunk, and the crc that goes with them."""
    data = data[:at] + value + data[at + len(value) :]
    return data[:12] + struct.pack("<I", zlib.crc32(data[16:])) + data[16:]


class TestFiles:
    def test_a_torn_tail_is_cut_at_the_last_whole_chunk_and_said(self) -> None:
        whole = chunk(0) + chunk(1)
        for cut in range(1, len(chunk(1))):
            found, reader = decoded(whole[:-cut])
            assert names(found) == ["range 0"]
            assert "the chunks before byte" in reader.findings.truncated
            assert reader.findings.lost == {"truncated": 1}

    def test_a_chunk_whose_crc_does_not_hold_is_passed_over(self) -> None:
        broken = bytearray(chunk(1))
        broken[-1] ^= 1
        found, reader = decoded(chunk(0) + broken + chunk(2))
        assert names(found) == ["range 0", "range 2"]
        assert reader.findings.lost == {"crc": 1, "missing_chunks": 1}

    def test_garbage_between_chunks_is_passed_over(self) -> None:
        found, reader = decoded(chunk(0) + b"x" * 1000 + chunk(1))
        assert names(found) == ["range 0", "range 1"]
        assert reader.findings.lost == {"header": 1}

    def test_a_length_that_lies_costs_only_its_own_chunk(self) -> None:
        for length in (0, 95, 97, 400, 1 << 19, 0xFFFFFFFF):
            liar = chunk(1)[:8] + struct.pack("<I", length) + chunk(1)[12:]
            found, reader = decoded(chunk(0) + liar + chunk(2) + chunk(3))
            assert names(found) == ["range 0", "range 2", "range 3"], length
            assert sum(reader.findings.lost.values()) >= 1

    def test_a_later_version_is_left_alone(self) -> None:
        found, reader = decoded(chunk(0) + patched(chunk(1), 4, struct.pack("<H", 9)))
        assert names(found) == ["range 0"]
        assert reader.findings.lost == {"version": 1}

    @pytest.mark.parametrize(
        ("at", "value"),
        [
            (6, b"\7"),  # codec
            (76, struct.pack("<I", limits.CHUNK_BODY_BYTES_MAX + 1)),
            (80, struct.pack("<I", limits.CHUNK_SLOTS_MAX + 1)),
            (72, struct.pack("<I", 60_000)),  # more events than slots
            (48, struct.pack("<Q", 1 << 63)),  # times that no sum survives
            (56, struct.pack("<q", -1)),
            (56, struct.pack("<q", (1 << 63) - 1)),
        ],
    )
    def test_headers_that_make_no_sense_are_counted(self, at: int, value: bytes) -> None:
        found, reader = decoded(chunk(0) + patched(chunk(1), at, value))
        assert names(found) == ["range 0"]
        assert reader.findings.lost == {"header": 1}

    def test_nothing_readable_is_an_error(self) -> None:
        for data in (b"", b"PFC1", chunk(0)[:-1], b"PFC1" * 100):
            with pytest.raises(BadTrace, match="no event chunk"):
                decoded(data)

    def test_headers_without_end_are_given_up_on(self) -> None:
        # GIVEN what makes a reader compute a crc over a mebibyte at every step
        bait = b"PFC1" + struct.pack("<HBBI", 1, 0, 0, 1 << 20) + bytes(84)
        _, reader = decoded(chunk(0) + bait * 20_000)
        assert reader.findings.truncated
        assert reader.findings.lost["crc"] <= limits.CHUNK_RESYNCS_MAX + 1


class TestFilesThatChange:
    @pytest.mark.parametrize(
        "becomes",
        [
            pytest.param(b"", id="shorter"),
            pytest.param(b"PFC1", id="cut in the header"),
            pytest.param(b"noise" * 100, id="noise"),
            pytest.param(chunk(5), id="another chunk"),
            pytest.param(chunk(0)[:-1] + b"\1", id="another body"),
        ],
    )
    def test_between_the_passes(self, becomes: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        # GIVEN a chunk that is not kept from the first pass to the second
        monkeypatch.setattr(limits, "CHUNK_BODIES_BYTES", 0)
        data = chunk(0)
        file = io.BytesIO(data)
        reader = chunks.ChunkDecoder(file, len(data))
        index = reader._index

        def index_and_change(*arguments: Any) -> None:
            index(*arguments)
            file.seek(0)
            file.truncate()
            file.write(becomes)

        monkeypatch.setattr(reader, "_index", index_and_change)
        with pytest.raises(BadTrace, match="changed while it was read: at byte 0"):
            list(reader.batches())

    def test_what_does_not_change_is_read_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "CHUNK_BODIES_BYTES", 0)
        found, reader = decoded(chunk(0) + chunk(1))
        assert names(found) == ["range 0", "range 1"]
        assert reader.findings.lost == {}


class TestStreams:
    def test_a_chunk_that_comes_again_is_dropped_and_counted(self) -> None:
        found, reader = decoded(chunk(0) + chunk(1) + chunk(0) + chunk(1))
        assert names(found) == ["range 0", "range 1"]
        assert reader.findings.counted == {"duplicate_chunks": 2}
        assert reader.findings.lost == {}

    def test_the_same_number_of_another_stream_epoch_or_process_is_another_chunk(self) -> None:
        others = [chunk(0, stream=4), chunk(0, epoch=8), chunk(0, incarnation=6)]
        found, reader = decoded(chunk(0) + b"".join(others))
        assert len(found) == 4
        assert reader.findings.counted == {}

    def test_numbers_that_are_missing_are_counted(self) -> None:
        _, reader = decoded(chunk(2) + chunk(5) + chunk(0, stream=9))
        assert reader.findings.lost == {"missing_chunks": 4}

    def test_chunks_are_read_in_the_order_of_their_times(self) -> None:
        late = chunk(1, base=HEADER["base"] + 1000, real=HEADER["real"] + 1000, at=1000)
        found, reader = decoded(late + chunk(0))
        assert names(found) == ["range 0", "range 1"]
        assert reader.findings.lost == {}

    def test_texts_and_ends_are_found_wherever_they_stand(self) -> None:
        # GIVEN a range that another thread's chunk ends, and a text that only the last chunk in the file brings
        strings = Strings()
        name, other = strings.id("begun here"), strings.id("second thread")
        first = Chunk([Slot(1100, 0, name, arena.RANGE, arena.ASYNC)], stream=0, tid=1)
        second = Chunk([Slot(0, 1700, 0, arena.PATCH, payload=0)], stream=1, tid=2, thread_name=other)
        one, two = twin.split(encoded([first, second], strings))
        without = twin.section(2, twin.sections(one[1])[2].data) + twin.section(4, twin.sections(one[1])[4].data)
        bringing = twin.sections(one[1])[1].data
        last = twin.pack({**two[0], "sequence": 1, "slots": 0, "events": 0}, twin.section(1, bringing))
        found, reader = decoded(twin.pack(two[0], two[1]) + twin.pack(one[0], without) + last)
        assert [(row["name"], row["start"], row["end"], row["end_thread"]) for row in found] == [
            ("begun here", 5100, 5700, 2)
        ]
        assert reader.findings.lost == reader.findings.counted == {}

    def test_a_text_that_never_came_is_a_question_mark(self) -> None:
        body = twin.section(2, b"\1\6\1\0\0\0") + twin.section(4, b"\1\0\0\0\0")
        found, reader = decoded(twin.pack({**HEADER, "slots": 1, "events": 1}, body))
        assert names(found) == ["?"]
        assert reader.findings.counted == {"names_missing": 1}

    def test_open_ranges_that_nobody_ends_have_no_end(self) -> None:
        found, _ = decoded(encoded([Chunk([Slot(1100, 0), Slot(1200, 0, kind=arena.OP)])]))
        assert ["end" in row for row in found] == [False, False]

    def test_ends_beyond_the_limit_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "OPEN_EVENTS_MAX", 2)
        slots = [Slot(1100, 0) for _ in range(4)] + [Slot(0, 1200, payload=at, kind=arena.PATCH) for at in range(4)]
        found, reader = decoded(encoded([Chunk(slots)]))
        assert sum("end" in row for row in found) == 2
        assert reader.findings.counted == {"too_many_open": 2}

    def test_chunks_beyond_the_limit_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "CHUNKS_MAX", 3)
        with pytest.raises(Exhausted, match="more than 3 chunks"):
            decoded(b"".join(chunk(sequence) for sequence in range(5)))

    def test_texts_beyond_the_limit_are_dropped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "DICTIONARY_BYTES_MAX", 400)
        found, reader = decoded(b"".join(chunk(sequence) for sequence in range(6)))
        assert len(found) == 6
        assert reader.findings.counted["names_dropped"] > 0


class TestClock:
    def stepped(self, by: int, error: int = 0) -> tuple[list[dict[str, Any]], Any]:
        second = chunk(1, base=HEADER["base"] + 500, real=HEADER["real"] + 500 + by, at=500 + by, error=error)
        return decoded(chunk(0) + second)

    def test_a_stepped_wall_clock_moves_no_event_and_is_said(self) -> None:
        found, reader = self.stepped(3_600_000_000_000)
        assert [row["start"] - cases.REAL for row in found] == [0, 500]
        assert reader.findings.counted == {"clock_steps": 1}
        assert reader.findings.warnings == [
            "the wall clock was stepped by +3600.000 s while this was recorded; its times go on as before"
        ]

    @pytest.mark.parametrize(("by", "error"), [(900_000, 0), (5_000_000, 4_500_000)])
    def test_what_reading_two_clocks_may_be_off_is_no_step(self, by: int, error: int) -> None:
        found, reader = self.stepped(by, error)
        assert [row["start"] - cases.REAL for row in found] == [0, 500]
        assert reader.findings.warnings == []
        assert reader.findings.counted == {}
        assert reader.findings.clock_error_ns == error

    def test_many_steps_are_counted(self) -> None:
        data = b"".join(chunk(number, real=HEADER["real"] + number * 10**10, at=number * 10**10) for number in range(9))
        _, reader = decoded(data)
        assert len(reader.findings.warnings) == 4
        assert reader.findings.counted == {"clock_steps": 8}


class TestBodies:
    def lost(self, body: bytes) -> dict[str, int]:
        header = {**HEADER, "sequence": 1, "slots": 4, "events": 3}
        found, reader = decoded(chunk(0) + twin.pack(header, body))
        assert names(found) == ["range 0"]
        return reader.findings.lost

    @pytest.mark.parametrize(
        "body",
        [
            b"\1",  # a section without a length
            b"\1\5\0",  # cut short
            twin.section(2, b"\0") * 2,  # twice
            twin.section(2, b"\1\0\1\0\0\0\0"),  # a byte left over
            twin.section(2, b"\377\377\377\377\177"),  # labels without end
            twin.section(2, b"\1\377\377\377\377\377\377\377\377\377\1\1\0\0\0"),  # a name beyond all ids
            twin.section(1, b"\1\3\377\377\377\377\17abc"),  # a text longer than the section
            twin.section(1, b"\2\377\377\377\377\17\1\0\0"),  # an id beyond 2^32
            twin.section(15, b"\1\3a b\1"),  # a reason that is no word
            twin.section(4, b"\1\0\0\0\0"),  # a row of a label that is not there
        ],
    )
    def test_malformed_sections(self, body: bytes) -> None:
        assert self.lost(body) == {"malformed": 3}

    LABELS = twin.section(2, b"\2\0\0\1\6\0\0\0\0\0\1")  # 0: range; 1: instant that takes one slot more

    @pytest.mark.parametrize(
        ("tag", "content"),
        [
            (3, b"\1\1\1\1\0\0\0"),  # an instant among the ranges
            (3, b"\1\1\1\0\1\0\0"),  # a pop with nothing open
            (3, b"\1\1\1\7\0\0\0"),  # no such label
            (3, b"\1\1\1\0\0\0"),  # an end too few
            (3, b"\1\1\1\0\0\0\0\0"),  # a byte too many
            (3, b"\1\2\1\0\0\0\0\0"),  # a label too many
            (3, b"\5\5\5" + bytes(20)),  # five in four slots
            (3, b"\1\1\1\0\0\0\377\377\377\377\377\377\377\377\177"),  # a length of 292 years
            (3, b"\1\1\1\0\0\376\377\377\377\377\377\377\377\377\1\0"),  # a start as far away
            (4, b"\1\4\0\0\0"),  # beyond the last slot
            (4, b"\2\0\1\0\0\1\0"),  # within the slots of the one before
            (4, b"\1\3\1\0"),  # its extension beyond the last slot
            (5, b"\1\0"),  # a value too few
            (5, b"\1\4\0"),  # beyond the last slot
            (5, b"\377\377\377\177\0"),  # more of them than bytes
            (9, b"\1\0\0\0"),  # a byte too many
            (12, b"\1\0\1\5abc\0"),  # a blob longer than the section
            (13, b"\1\0\1\2{}\1"),  # no such blob
            (14, b"\1\0\377\377\3\0"),  # more pairs than bytes
            (16, b"\1\0\5\0\0\0\0\0"),  # a GPU record of no known size
        ],
    )
    def test_malformed_rows(self, tag: int, content: bytes) -> None:
        assert self.lost(self.LABELS + twin.section(tag, content)) == {"malformed": 3}

    def test_times_that_go_around(self) -> None:
        """Fifteen steps, each of a length that would do, end a little before where they began: 2^64 is sixteen."""
        count = 8
        columns = bytes(count), b"\0" + b"\1" * (count - 1)
        times = twin.svarint(0) + twin.varint(1 << 60) * (2 * count - 1)
        nested = twin.varint(count) * 3 + b"".join(columns) + times
        header = {**HEADER, "sequence": 1, "slots": count, "events": count}
        found, reader = decoded(chunk(0) + twin.pack(header, self.LABELS + twin.section(3, nested)))
        assert names(found) == ["range 0"]
        assert reader.findings.lost == {"malformed": count}

    def test_an_attribute_of_no_event_is_passed_over(self) -> None:
        body = self.LABELS + twin.section(4, b"\1\0\1\0") + twin.section(5, b"\1\2\0")
        found, reader = decoded(twin.pack({**HEADER, "slots": 4, "events": 1}, body))
        assert len(found) == 1
        assert reader.findings.counted == {"stray_attribute": 1}

    def test_unknown_kinds_are_rows_of_no_kind_and_counted(self) -> None:
        body = twin.section(2, b"\1\0\310\0\0\0") + twin.section(4, b"\1\0\0\2\5")
        found, reader = decoded(twin.pack({**HEADER, "slots": 1, "events": 1}, body))
        assert [(row["kind"], row["end"] - row["start"]) for row in found] == [(0, 2)]
        assert reader.findings.counted == {"unknown_kind": 1}

    def test_a_bomb_is_stopped_at_what_the_header_says(self) -> None:
        for says in (1000, limits.CHUNK_BODY_BYTES_MAX):
            bomb = zstd.compress(bytes(1 << 28), 1)
            data = twin.pack({**HEADER, "sequence": 1, "slots": 4, "events": 3}, bomb)
            data = patched(patched(data, 6, b"\1"), 76, struct.pack("<I", says))
            _, reader = decoded(chunk(0) + data)
            assert reader.findings.lost == {"inflate": 3}

    @pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"\x28\xb5\x2f\xfd", zstd.compress(b"abc") * 2])
    def test_what_is_no_frame_is_counted(self, damage: bytes) -> None:
        data = twin.pack({**HEADER, "sequence": 1, "slots": 4, "events": 3}, damage)
        data = patched(patched(data, 6, b"\1"), 76, struct.pack("<I", 3))
        _, reader = decoded(chunk(0) + data)
        assert reader.findings.lost == {"inflate": 3}

    def test_arguments_and_inputs_that_are_none_are_counted(self) -> None:
        slots = [
            Slot(1100, 1200, kind=arena.OP, records=[(arena.EXT_ARGS, b"[1]"), (arena.EXT_INPUTS, b"\377")]),
            Slot(
                1300, 1400, kind=arena.OP, records=[(arena.EXT_ARGS, b"{" * 3000), (arena.EXT_INPUTS, b"\1\6\377\377")]
            ),
        ]
        found, reader = decoded(encoded([Chunk(slots)]))
        assert [row["args"] for row in found] == [{}, {}]
        assert reader.findings.counted == {"bad_arguments": 2, "bad_inputs": 2}

    def test_argument_keys_beyond_the_limit_share_a_column(self) -> None:
        texts = [
            json.dumps({f"k{at}": at for at in range(first, first + 150)}).encode() for first in range(0, 600, 150)
        ]
        found, _ = decoded(encoded([Chunk([Slot(1100, 1200, records=[(arena.EXT_ARGS, text)]) for text in texts])]))
        keys = {key for row in found for key in row["args"]}
        assert len(keys) == limits.ARG_KEYS_MAX + 1
        assert "@extra" in keys


@given(cases.chunks(), st.data())
def test_fuzz_mutated_bodies_are_read_or_refused_as_a_whole(
    made: tuple[list[Chunk], Strings], data: st.DataObject
) -> None:
    """WHEN any byte of a body changes and the crc fits THEN rows come from whole chunks only."""
    originals = twin.split(encoded(*made))
    mutated = []
    for header, body in originals:
        changed = bytearray(body)
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(changed)))
            changed[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        mutated.append(twin.pack(header, bytes(changed), compress=data.draw(st.booleans())))
    found, reader = decoded(b"".join(mutated))
    refused = reader.findings.lost.get("malformed", 0)
    assert len(found) + refused >= sum(header["events"] for header, _ in originals)
    # A chunk without events that is refused counts as one.
    assert len(found) + refused <= sum(max(1, header["events"]) for header, _ in originals)


@given(st.binary(max_size=300))
@example(b"")
def test_fuzz_any_body(body: bytes) -> None:
    found, reader = decoded(chunk(0) + twin.pack({**HEADER, "sequence": 1, "slots": 40, "events": 3}, body))
    assert names(found)[0] == "range 0"
    assert reader.findings.lost.get("malformed", 0) in (0, 3)


@given(st.lists(st.sampled_from([chunk(0), chunk(1), chunk(2)]), min_size=1), st.data())
def test_fuzz_any_damage_to_a_file(parts: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(parts))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(whole)))
        whole[at : at + data.draw(st.integers(0, 120))] = data.draw(st.binary(max_size=20))
    try:
        found, _ = decoded(bytes(whole))
    except BadTrace:
        return
    assert set(names(found)) <= {"range 0", "range 1", "range 2"}
    assert len(set(names(found))) == len(found)


def test_batches_have_so_many_rows_and_no_more_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BATCH_ROWS", 2)
    reader = decoder(b"".join(chunk(sequence) for sequence in range(5)))
    assert [len(batch.events) for batch in reader.batches()] == [2, 2, 1]
