"""Reads an arena the slow, obvious way: the twin of the native encoder, for tests. docs/arena.md says what it reads."""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHUNK_BYTES = 64 * 1024
CHUNK_HEADER_BYTES = 128
SLOT_BYTES = 32
SLOTS_PER_CHUNK = (CHUNK_BYTES - CHUNK_HEADER_BYTES) // SLOT_BYTES
LOST = (
    "arena_full",
    "strings_full",
    "too_large",
    "backed_off",
    "foreign_thread",
    "cupti_dropped",
    "cupti_bad_time",
    "cupti_late",
    "cuda_events_full",
    "cuda_event_failed",
    "too_deep",
)

_HEADER = struct.Struct("<QIIQQQIIQQQQII QQq II QQq II QQQ")
_CHUNK = struct.Struct("<IIQIIQII QQq QQq")
_SLOT = struct.Struct("<QQIBBBBQ")
_STATE = struct.Struct("<I")
FREED_OFFSET = _HEADER.size - 16  # `recorded` is the last of the fixed fields, `freed` the one before it
_U64 = struct.Struct("<Q")


class State(enum.IntEnum):
    FREE = 0
    OPEN = 1
    SEALED = 2
    ORPHAN = 3


class Kind(enum.IntEnum):
    NONE = 0
    RANGE = 1
    OP = 2
    PY_CALL = 3
    C_CALL = 4
    MODULE = 5
    INSTANT = 6
    COUNTER = 7
    ALLOC = 8
    OUT_OF_MEMORY = 9
    PATCH = 10
    THREAD = 11
    API = 12
    KERNEL = 13
    MEMCPY = 14
    MEMSET = 15
    SYNC = 16
    OVERHEAD = 17
    GRAPH = 18


class Ext(enum.IntEnum):
    END = 0
    INPUTS = 1
    ARGS = 2
    MEMORY = 3
    MODULE = 4
    FORWARD_THREAD = 5
    DEBUG_HANDLE = 6
    STACK = 7
    TENSOR_IDS = 8
    EXTERNAL_TIME = 9
    FLOPS = 10
    GPU = 11


ASYNC, OPEN_AT_START, FAILED, BACKEND, NAMED, ALLOW_TF32 = 1, 2, 4, 8, 16, 32


@dataclass
class Event:
    """One primary slot, with its extension records as bytes by type; times in ticks, `end` 0 while open."""

    kind: Kind
    name: str
    start: int
    end: int
    flags: int
    scope: int
    payload: int
    id: int
    stream: int
    sequence: int
    slot: int
    tid: int
    thread_name: str
    end_tid: int | None = None
    ext: dict[int, bytes] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """Of a counter."""
        return struct.unpack("<d", _U64.pack(self.end))[0]


@dataclass
class Chunk:
    """One chunk of any state."""

    index: int
    state: State
    generation: int
    stream: int
    sequence: int
    tid: int
    thread_name: str
    id_base: int
    count: int
    opened: tuple[int, int, int]
    sealed: tuple[int, int, int]


@dataclass
class Arena:
    """What was in it."""

    header: dict[str, Any]
    chunks: list[Chunk]
    events: list[Event]
    patches: list[Event]
    lost: dict[str, int]
    string: Callable[[int], str]  # by id

    def named(self, name: str) -> list[Event]:
        """The events of this name, in order of start."""
        return [event for event in self.events if event.name == name]

    def one(self, name: str) -> Event:
        """The only event of this name."""
        found = self.named(name)
        assert len(found) == 1, f"{len(found)} events named {name!r}"
        return found[0]

    def names(self) -> list[str]:
        """Names of all events, in order of start."""
        return [event.name for event in self.events]


def read_arena(fd: int) -> Arena:
    """Everything published in the arena behind `fd`, where nobody records any more; patches are applied."""
    reader = _Reader(fd)
    chunks, events, patches = [], [], []
    for index in range(reader.header["chunk_count"]):
        chunk = reader.chunk(index)
        if chunk.state is State.FREE:
            continue
        chunks.append(chunk)
        for event in reader.events(chunk):
            (patches if event.kind is Kind.PATCH else events).append(event)
    _apply(patches, events)
    events.sort(key=lambda event: (event.start, event.id))
    return Arena(reader.header, chunks, events, patches, reader.lost, reader.string)


def _apply(patches: list[Event], events: list[Event]) -> None:
    by_place = {(event.stream, event.sequence, event.slot): event for event in events}
    for patch in patches:
        # A patch names its stream where other events have their name, and is found by where the event began.
        event = by_place.get((int(patch.name), patch.start, patch.payload))
        assert event is not None, f"a patch of an event that is not there: {patch}"
        assert event.end == 0, f"an event that ended twice: {event}"
        event.end, event.end_tid = patch.end, patch.tid
        event.flags |= patch.flags


class _Reader:
    def __init__(self, fd: int) -> None:
        self._fd = fd
        raw = os.pread(fd, 4096, 0)
        values = _HEADER.unpack_from(raw)
        names = [
            "magic",
            "version",
            "header_bytes",
            "arena_bytes",
            "incarnation",
            "epoch",
            "pid",
            "clock",
            "states_offset",
            "strings_offset",
            "strings_bytes",
            "chunks_offset",
            "chunk_count",
            "chunk_bytes",
            "armed_ticks",
            "armed_mono",
            "armed_real",
            "latest_turn",
            "_",
            "latest_ticks",
            "latest_mono",
            "latest_real",
            "recording",
            "_",
            "strings_tail",
            "freed",
            "recorded",
        ]
        self.header = dict(zip(names, values, strict=True))
        assert self.header["magic"] == 0x31414E4552414650, "not an arena"
        assert self.header["chunk_bytes"] == CHUNK_BYTES
        lost = struct.unpack_from("<16Q", raw, _HEADER.size)
        self.lost = {name: lost[at] for at, name in enumerate(LOST)}
        self._strings = os.pread(fd, self.header["strings_tail"], self.header["strings_offset"])

    def string(self, identity: int) -> str:
        at = identity * 8
        assert at + 4 <= len(self._strings), f"string {identity} is not published"
        (size,) = struct.unpack_from("<I", self._strings, at)
        assert at + 4 + size <= len(self._strings), f"string {identity} is not whole"
        return self._strings[at + 4 : at + 4 + size].decode()

    def chunk(self, index: int) -> Chunk:
        (state,) = _STATE.unpack(os.pread(self._fd, 4, self.header["states_offset"] + 4 * index))
        raw = os.pread(self._fd, CHUNK_HEADER_BYTES, self.header["chunks_offset"] + index * CHUNK_BYTES)
        generation, stream, sequence, tid, name, id_base, count, _, *anchors = _CHUNK.unpack_from(raw)
        assert count <= SLOTS_PER_CHUNK
        return Chunk(
            index, State(state), generation, stream, sequence, tid, self.string(name), id_base, count,
            tuple(anchors[:3]), tuple(anchors[3:]),
        )  # fmt: skip

    def events(self, chunk: Chunk) -> list[Event]:
        at = self.header["chunks_offset"] + chunk.index * CHUNK_BYTES + CHUNK_HEADER_BYTES
        raw = os.pread(self._fd, chunk.count * SLOT_BYTES, at)
        events, slot, tid, thread_name = [], 0, chunk.tid, chunk.thread_name
        while slot < chunk.count:
            start, end, name, kind, flags, scope, extensions, payload = _SLOT.unpack_from(raw, slot * SLOT_BYTES)
            assert slot + 1 + extensions <= chunk.count, "an event is published with its extensions"
            if kind == Kind.THREAD:
                tid, thread_name = end, self.string(name)
            else:
                text = str(name) if kind == Kind.PATCH else self.string(name)
                records = raw[(slot + 1) * SLOT_BYTES : (slot + 1 + extensions) * SLOT_BYTES]
                events.append(
                    Event(
                        Kind(kind),
                        text,
                        start,
                        end,
                        flags,
                        scope,
                        payload,
                        chunk.id_base + slot,
                        chunk.stream,
                        chunk.sequence,
                        slot,
                        tid,
                        thread_name,
                        tid if end else None,
                        _records(records),
                    )
                )
            slot += 1 + extensions
        return events


def _records(raw: bytes) -> dict[int, bytes]:
    """Extension records {u8 type, u8 0, u16 length, bytes}; type 0 or the end of the slots ends them."""
    records: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(raw) and raw[at] != Ext.END:
        kind, zero, length = struct.unpack_from("<BBH", raw, at)
        assert zero == 0
        assert at + 4 + length <= len(raw), "a record is whole"
        records[kind] = raw[at + 4 : at + 4 + length]
        at += 4 + length
    return records
