"""Event chunks to rows: what the native decoder gives for what slots, the twin, and bytes written by hand say."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any
from unittest import mock

from hypothesis import given
from profd.decode.chunks import ChunkDecoder
from profd.decode.op_inputs import signature
from profd.errors import BadTrace
from profd.events import COLUMNS, EventTable, Kind

from tests.support import chunk_cases as cases
from tests.support import chunk_twin as twin
from tests.support.arena_writer import Chunk, Strings
from tests.support.encoding import encoded

KINDS = {
    1: Kind.USER_ANNOTATION,
    2: Kind.CPU_OP,
    3: Kind.PYTHON_FUNCTION,
    4: Kind.PYTHON_FUNCTION,
    5: Kind.PYTHON_FUNCTION,
    6: Kind.INSTANT,
    7: Kind.COUNTER,
    8: Kind.MEMORY,
    9: Kind.MEMORY,
}
UNNAMED = {8: "[memory]", 9: "[OutOfMemory]"}
HEADER = {
    "incarnation": 5,
    "stream": 3,
    "tid": 100,
    "sequence": 0,
    "id_base": 1,
    "base": 1_000_000,
    "pid": 4242,
    "epoch": 7,
}
HEADER |= {"real": cases.REAL}


def decoder(data: bytes) -> ChunkDecoder:
    return ChunkDecoder(io.BytesIO(data), len(data))


def rows(table: EventTable, reader: ChunkDecoder) -> list[dict[str, Any]]:
    """The rows of a table, with what they have and in words."""
    found: list[dict[str, Any]] = []
    for at in range(len(table)):
        row = {}
        for name, values in table.columns.items():
            spec, value = COLUMNS[name], values[at].item()
            if value == spec.absent or value != value:
                continue
            row[name] = reader.dictionaries[spec.dictionary].values[value] if spec.dictionary else value
        row["thread"] = reader.tracks.threads[row["thread"]]["id"]
        if "end_thread" in row:
            row["end_thread"] = reader.tracks.threads[row["end_thread"]]["id"]
        row["args"] = {}
        found.append(row)
    for (key, kind), arg in table.args.items():
        for at, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
            if kind == "ints":
                found[at]["args"].setdefault(key, []).append(value)
                continue
            found[at]["args"][key] = arg.dictionary.values[value] if arg.dictionary else value
    return found


def decoded(data: bytes) -> tuple[list[dict[str, Any]], ChunkDecoder]:
    reader = decoder(data)
    return [row for batch in reader.batches() for row in rows(batch.events, reader)], reader


def row_of(event: twin.Event) -> dict[str, Any]:
    """What the row of an event must be."""
    attributes = event.attributes
    row: dict[str, Any] = {
        "name": event.name or UNNAMED.get(event.kind, ""),
        "kind": KINDS[event.kind],
        "start": event.start,
        "thread": event.tid,
        "process": 0,
        "device_type": 1,
        "args": {},
    }
    if event.end is not None:
        row["end"] = event.end
    if event.end_tid not in (None, event.tid):
        row["end_thread"] = event.end_tid
    if event.kind == 2 or (event.kind == 1 and event.flags & twin.NAMED):
        row["external"] = event.fields[0]
    if event.kind == 2:
        row["scope"] = event.scope
    if event.flags & twin.ASYNC or "end_thread" in row:
        row["is_async"] = 1
    row |= dict(
        zip({7: ("value",), 8: ("bytes", "ptr"), 9: ("bytes",)}.get(event.kind, ()), event.fields[1:], strict=False)
    )
    names = {twin.SEQUENCE: "sequence", twin.FORWARD: "fwd_thread", twin.HANDLE: "debug_handle", twin.FLOPS: "flops"}
    row |= {name: attributes[tag] for tag, name in names.items() if tag in attributes}
    row |= {
        name: attributes[tag] for tag, name in ((twin.MODULE, "module"), (twin.STACK, "stack")) if attributes.get(tag)
    }
    if twin.MEMORY in attributes:
        row["device_type"], row["device"], allocated, reserved = attributes[twin.MEMORY]
        totals = {"total_allocated": allocated, "total_reserved": reserved}
        row |= {name: total for name, total in totals.items() if total is not None}
    for name in ("ptr", "fwd_thread"):
        if name in row:
            row[name] = twin.signed(row[name])
    row = {name: value for name, value in row.items() if value != -(1 << 63)}
    if twin.INPUTS in attributes:
        row["inputs"] = signature(attributes[twin.INPUTS])
    if twin.ARGS in attributes:
        given_args = json.loads(attributes[twin.ARGS])
        row["args"] = {
            key: json.dumps(value) if isinstance(value, list) else value for key, value in given_args.items()
        }
    for flag, name in ((2, "open at start"), (4, "failed"), (32, "allow_tf32")):
        if event.flags & flag:
            row["args"][name] = "true"
    if twin.TENSORS in attributes:
        for number, name in enumerate(("impl_ptrs", "storage_ptrs")):
            row["args"][name] = [twin.signed(pair[number]) for pair in attributes[twin.TENSORS]]
    return row


def bare(row: dict[str, Any]) -> dict[str, Any]:
    """Without what follows from its kind, and without when frames began that were open: see test_chunk_frames.py."""
    left_out = ("cat", "phase", "start") if "open at start" in row["args"] else ("cat", "phase")
    return {name: value for name, value in row.items() if name not in left_out}


@given(cases.chunks())
def test_property_what_slots_hold_is_what_rows_say(made: tuple[list[Chunk], Strings]) -> None:
    chunks, strings = made
    found, _ = decoded(encoded(chunks, strings))
    events = cases.expected(chunks, strings)
    assert in_some_order(map(bare, found)) == in_some_order(bare(row_of(event)) for event in events)


@given(cases.chunks())
def test_property_what_is_settled_is_complete(made: tuple[list[Chunk], Strings]) -> None:
    with mock.patch("profd.decode.chunks.BATCH_ROWS", 1):
        try:
            batches = list(decoder(encoded(*made)).batches())
        except BadTrace:
            return  # nothing in it
    for number, batch in enumerate(batches):
        assert batch.settled is not None
        later = [start for other in batches[number + 1 :] for start in other.events.columns["start"].tolist()]
        assert all(start >= batch.settled for start in later)


def in_some_order(found: Iterable[dict[str, Any]]) -> list[str]:
    """Rows to compare: chunks come in the order of their base times, and theirs may be equal."""
    return sorted(json.dumps(row, sort_keys=True) for row in found)


@given(cases.chunks())
def test_property_what_the_twin_writes_is_read(made: tuple[list[Chunk], Strings]) -> None:
    chunks, strings = made
    events = cases.expected(chunks, strings)
    for number, chunk in enumerate(chunks):
        mine = [event for event in events if chunk.id_base <= event.fields[0] < chunk.id_base + 2044]
        for event in mine:
            event.end_tid = None
            event.tid = chunk.tid
        header = {**HEADER, "sequence": number, "id_base": chunk.id_base, "tid": chunk.tid}
        for compress in (False, True):
            data = twin.write_chunk(header, _with_room(mine, chunk), compress=compress)
            found, reader = decoded(data)
            assert in_some_order(map(bare, found)) == in_some_order(bare(row_of(event)) for event in mine)
            assert reader.findings.lost == ({"missing_chunks": number} if number else {})


def _with_room(events: list[twin.Event], chunk: Chunk) -> list[twin.Event]:
    """The events at slots of their own, no slot between them but those of an extension."""
    slot = 0
    for event in events:
        event.extensions = event.fields[0] % 3
        event.slot = slot
        event.fields = (chunk.id_base + slot, *event.fields[1:])
        slot += 1 + event.extensions
    return events


class TestByHand:
    """A stream as somebody would write it who has nothing but docs/wire-format.md."""

    def body(self) -> bytes:
        strings = "02  03 02  03 02  66 6f 6f 62 61"
        labels = (
            "04"  # four labels
            "06 04 00 09"  # names: +3 = 3, +2 = 5, +0 = 5, -5 = 0
            "01 02 06 0a"  # range, op, instant, patch
            "00 00 00 00"  # no flags
            "00 01 00 00"  # the op is a backward function
            "00 01 00 00"  # and takes one slot more
        )
        nested = (
            "03"  # three ranges
            "03 03"  # of three bytes each are the columns
            "00 01 00"  # labels: foo, ba, foo
            "00 00 01"  # one range ends before the third begins
            "14"  # foo begins 10 ns after the base time
            "05"  # ba 5 ns later
            "07"  # ba ends 7 ns later
            "03"  # the second foo begins 3 ns later
            "80 01"  # it ends 128 ns later
            "c8 01"  # the first foo 200 ns later
        )
        others = (
            "03"  # three rows
            "03 00  c8 01  00"  # slot 3: foo begins 100 ns after the base and has not ended
            "00 02  02"  # slot 4: an instant 1 ns later
            "01 03  c8 01  09 02 07"  # slot 6: a patch 100 ns later: slot 7 of chunk 2 of stream 9 ends
        )
        sequence = "01  01  54"  # one slot, number 1: 42
        losses = "01  08 62 61 64 5f 73 6c 6f 74  04"  # "bad_slot", 4
        unknown = "de ad be ef"
        parts = ((1, strings), (2, labels), (3, nested), (4, others), (5, sequence), (15, losses), (99, unknown))
        return b"".join(bytes([tag, len(bytes.fromhex(text))]) + bytes.fromhex(text) for tag, text in parts)

    def chunk(self) -> bytes:
        body = self.body()
        after_crc = struct.pack(
            "<QIIQQQqIIIIIIQ",
            0xFEED,  # incarnation
            9,  # stream
            501,  # tid
            0,  # sequence
            1000,  # correlation id of slot 0
            5_000,  # CLOCK_MONOTONIC
            1_000_000_000,  # CLOCK_REALTIME
            250,  # clock error
            4242,  # pid
            5,  # events
            len(body),
            7,  # slots
            5,  # the thread is called "ba"
            1,  # epoch
        )
        before_crc = b"PFC1" + struct.pack("<HBBI", 1, 0, 0, 96 + len(body))
        return before_crc + struct.pack("<I", zlib.crc32(after_crc + body)) + after_crc + body

    def test_it_is_read(self) -> None:
        found, reader = decoded(self.chunk())
        base = {"process": 0, "thread": 501, "device_type": 1, "args": {}}
        assert list(map(bare, found)) == [
            {**base, "name": "foo", "kind": Kind.USER_ANNOTATION, "start": 1_000_000_010, "end": 1_000_000_353},
            {
                **base,
                "name": "ba",
                "kind": Kind.CPU_OP,
                "start": 1_000_000_015,
                "end": 1_000_000_022,
                "external": 1001,
                "scope": 1,
                "sequence": 42,
            },
            {**base, "name": "foo", "kind": Kind.USER_ANNOTATION, "start": 1_000_000_100},
            {**base, "name": "ba", "kind": Kind.INSTANT, "start": 1_000_000_101, "end": 1_000_000_101},
            {**base, "name": "foo", "kind": Kind.USER_ANNOTATION, "start": 1_000_000_025, "end": 1_000_000_153},
        ]
        assert reader.tracks.threads == [{"id": 501, "process": 0, "name": "ba"}]
        assert reader.tracks.processes == [{"id": 4242}]
        assert reader.findings.lost == {"bad_slot": 4}
        assert reader.findings.counted == {"unmatched_end": 1}
        assert reader.findings.clock_error_ns == 250
        assert reader.findings.truncated == ""

    def test_the_twin_reads_it_too(self) -> None:
        ((header, body),) = twin.split(self.chunk())
        found = twin.read_chunk(header, body)
        assert [event.slot for event in found.events] == [0, 1, 3, 4, 5, 6]
        assert found.losses == {"bad_slot": 4}
