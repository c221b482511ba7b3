"""Arena chunks for hypothesis, and what events they hold: taken from the slots, by no encoder or decoder."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from tests.support import arena_writer as arena
from tests.support import chunk_twin as twin
from tests.support.arena_writer import Chunk, Slot, Strings

MONO, REAL = 1_000_000, 1_700_000_000_000_000_000
NAMES = ("", "forward", "aten::add", "model.py(12): step", "ünïcode")
RANGE_KINDS = (arena.RANGE, arena.OP, arena.PY_CALL, arena.C_CALL, arena.MODULE)
_I64 = st.integers(-(1 << 63), (1 << 63) - 1)
_U64 = st.integers(0, (1 << 64) - 1)


@st.composite
def _records(draw: Any, strings: Strings, kind: int) -> list[tuple[int, bytes]]:
    def text() -> bytes:
        return struct.pack("<I", strings.id(draw(st.sampled_from(NAMES))))

    made = {
        arena.EXT_INPUTS: lambda: draw(st.sampled_from([b"\0", b"\1\6\1\4\2", b"\5\7"])),
        arena.EXT_ARGS: lambda: draw(st.sampled_from([b'{"a": 1}', b'{"b": "x", "c": [1]}'])),
        arena.EXT_MEMORY: lambda: struct.pack(
            "<BBhIqq", draw(st.integers(0, 6)), 0, draw(st.integers(-1, 7)), 0, draw(_I64), draw(_I64)
        ),
        arena.EXT_MODULE: text,
        arena.EXT_STACK: text,
        arena.EXT_HANDLE: lambda: struct.pack("<q", draw(_I64)),
        arena.EXT_FLOPS: lambda: struct.pack("<d", draw(st.floats(0, 1e18))),
        arena.EXT_TENSORS: lambda: struct.pack("<QQQQ", *(draw(_U64) for _ in range(4))),
    }
    if kind == arena.OP:
        made[arena.EXT_FORWARD] = lambda: struct.pack("<Q", draw(_U64))
    wanted = draw(st.lists(st.sampled_from(sorted(made)), max_size=3, unique=True))
    return [(record, made[record]()) for record in wanted]


@st.composite
def _slot(draw: Any, strings: Strings, now: int) -> Slot:
    kind = draw(
        st.sampled_from((*RANGE_KINDS, *RANGE_KINDS, arena.INSTANT, arena.COUNTER, arena.ALLOC, arena.OUT_OF_MEMORY))
    )
    slot = Slot(now, name=strings.id(draw(st.sampled_from(NAMES))), kind=kind)
    if draw(st.integers(0, 4)) == 0:
        slot.records = draw(_records(strings, kind))
    if kind == arena.COUNTER:
        (slot.end,) = struct.unpack("<Q", struct.pack("<d", draw(st.floats(allow_nan=False))))
    elif kind == arena.ALLOC:
        slot.end, slot.payload = draw(_U64), draw(_I64)
    elif kind == arena.OUT_OF_MEMORY:
        slot.payload = draw(_I64)
    elif kind in RANGE_KINDS:
        slot.flags = draw(
            st.sampled_from((0, 0, 0, arena.ASYNC, arena.OPEN_AT_START, arena.FAILED, arena.NAMED, arena.ALLOW_TF32))
        )
        slot.end = draw(st.sampled_from((0, now, now + 1, now + 5, now + 20, now + 300)))
        if kind == arena.OP:
            slot.scope = draw(st.integers(0, 10))
            if any(record == arena.EXT_FORWARD for record, _ in slot.records):
                slot.payload = draw(st.integers(0, (1 << 40) - 1))
            else:
                slot.payload = draw(st.integers(0, (1 << 40) - 1)) | draw(st.integers(0, (1 << 24) - 1)) << 40
        if draw(st.integers(0, 9)) == 0 and slot.flags == 0:
            slot.flags, slot.start, slot.end = arena.BACKEND, 0, 1
            start = REAL + draw(st.integers(-1000, 1000))
            slot.records.append((arena.EXT_TIME, struct.pack("<qq", start, start + draw(st.integers(-5, 500)))))
    return slot


@st.composite
def chunks(draw: Any) -> tuple[list[Chunk], Strings]:
    """A stream of one thread, its open ranges ended by patches or never; plus its strings."""
    strings, made, now, id_base = Strings(), [], MONO, 1
    open_slots: list[tuple[int, int]] = []
    for sequence in range(draw(st.integers(1, 3))):
        opened, slots, at = now, [], 0
        thread_name = strings.id(draw(st.sampled_from(NAMES)))
        for _ in range(draw(st.integers(0, 25))):
            now += draw(st.sampled_from((0, 1, 7, 130, 70_000)))
            if open_slots and draw(st.integers(0, 3)) == 0:
                place = open_slots.pop(draw(st.integers(0, len(open_slots) - 1)))
                slot = Slot(place[0], now, 3, arena.PATCH, payload=place[1])
            elif draw(st.integers(0, 15)) == 0:
                slot = Slot(now, draw(st.integers(1, 1 << 31)), strings.id(draw(st.sampled_from(NAMES))), arena.THREAD)
            else:
                slot = draw(_slot(strings, now))
                is_open = slot.kind in RANGE_KINDS and slot.end == 0
                if is_open:
                    open_slots.append((sequence, at))
            slots.append(slot)
            at += len(slot.pack()) // arena.SLOT_BYTES
        now += 1
        real = REAL + opened - MONO
        made.append(
            Chunk(
                slots,
                stream=3,
                sequence=sequence,
                thread_name=thread_name,
                id_base=id_base,
                opened=(opened, opened, real),
                sealed=(now, now, REAL + now - MONO),
            )
        )
        id_base += arena.SLOTS_PER_CHUNK
    return made, strings


def expected(made: list[Chunk], strings: Strings) -> list[twin.Event]:
    """The events of a stream, as the twin gives them."""
    texts = {number: text for text, number in strings.ids.items()}
    ends: dict[tuple[int, int], tuple[int, int]] = {}
    found = []
    for chunk in made:
        tid = chunk.tid
        for slot in chunk.slots:
            if slot.kind == arena.THREAD:
                tid = slot.end
            if slot.kind == arena.PATCH:
                ends.setdefault((slot.start, slot.payload), (slot.end, tid))
    for chunk in made:
        tid, at = chunk.tid, 0
        for slot in chunk.slots:
            if slot.kind == arena.THREAD:
                tid = slot.end
            elif slot.kind != arena.PATCH:
                patch = ends.get((chunk.sequence, at))
                found.append(_event(chunk, slot, at, tid, patch, texts))
            at += len(slot.pack()) // arena.SLOT_BYTES
    return found


def _event(chunk: Chunk, slot: Slot, at: int, tid: int, patch: Any, texts: dict[int, str]) -> twin.Event:
    start, end, end_tid = slot.start + REAL - MONO, None, None
    fields: tuple[Any, ...] = ()
    if slot.kind not in RANGE_KINDS:
        end = start
        if slot.kind == arena.COUNTER:
            fields = struct.unpack("<d", struct.pack("<Q", slot.end))
        elif slot.kind == arena.ALLOC:
            fields = (slot.payload, slot.end)
        elif slot.kind == arena.OUT_OF_MEMORY:
            fields = (slot.payload,)
    elif slot.flags & arena.BACKEND:
        start, end = struct.unpack("<qq", dict(slot.records)[arena.EXT_TIME])
    elif slot.end:
        end = slot.end + REAL - MONO
    elif patch:
        end, end_tid = patch[0] + REAL - MONO, patch[1]
    attributes = dict(_attribute(record, value, texts) for record, value in slot.records if record != arena.EXT_TIME)
    if slot.kind == arena.OP and slot.payload & (1 << 40) - 1:
        attributes[twin.SEQUENCE] = (slot.payload & (1 << 40) - 1) - 1
    if slot.kind == arena.OP and slot.payload >> 40:
        attributes[twin.FORWARD] = slot.payload >> 40
    event = twin.Event(at, slot.kind, texts[slot.name], slot.flags, slot.scope, 0, start, end, tid, end_tid)
    event.fields, event.attributes = (chunk.id_base + at, *fields), attributes
    return event


def _attribute(record: int, value: bytes, texts: dict[int, str]) -> tuple[int, Any]:
    if record == arena.EXT_MEMORY:
        device_type, _, device, _, *totals = struct.unpack("<BBhIqq", value)
        return twin.MEMORY, (device_type, device, *(None if total == arena.UNKNOWN else total for total in totals))
    if record in (arena.EXT_MODULE, arena.EXT_STACK):
        tag = twin.MODULE if record == arena.EXT_MODULE else twin.STACK
        return tag, texts[struct.unpack("<I", value)[0]]
    if record == arena.EXT_TENSORS:
        ids = struct.unpack("<QQQQ", value)
        return twin.TENSORS, [ids[:2], ids[2:]]
    forms = {
        arena.EXT_HANDLE: (twin.HANDLE, "<q"),
        arena.EXT_FLOPS: (twin.FLOPS, "<d"),
        arena.EXT_FORWARD: (twin.FORWARD, "<Q"),
    }
    if record in forms:
        tag, form = forms[record]
        return tag, struct.unpack(form, value)[0]
    return {arena.EXT_INPUTS: twin.INPUTS, arena.EXT_ARGS: twin.ARGS}[record], value


def view(event: twin.Event) -> tuple[Any, ...]:
    """What there is to compare."""
    return (
        event.fields,
        event.kind,
        event.name,
        event.flags,
        event.scope,
        event.start,
        event.end,
        event.tid,
        event.end_tid,
        sorted(event.attributes.items()),
    )
