"""Arenas as a target would leave them (docs/arena.md), written slot by slot: for the encoder's tests.

Everything can be made wrong here: the encoder's writers are hostile.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass, field

PAGE = 4096
CHUNK_BYTES = 64 * 1024
CHUNK_HEADER_BYTES = 128
SLOT_BYTES = 32
SLOTS_PER_CHUNK = (CHUNK_BYTES - CHUNK_HEADER_BYTES) // SLOT_BYTES
MAGIC = 0x31414E4552414650
STRINGS_BYTES = 256 * 1024
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

FREE, OPEN, SEALED, ORPHAN = range(4)
MONOTONIC, TSC = range(2)
RANGE, OP, PY_CALL, C_CALL, MODULE, INSTANT, COUNTER, ALLOC, OUT_OF_MEMORY, PATCH, THREAD = range(1, 12)
ASYNC, OPEN_AT_START, FAILED, BACKEND, NAMED, ALLOW_TF32 = 1, 2, 4, 8, 16, 32
EXT_INPUTS, EXT_ARGS, EXT_MEMORY, EXT_MODULE, EXT_FORWARD, EXT_HANDLE, EXT_STACK, EXT_TENSORS, EXT_TIME, EXT_FLOPS = (
    range(1, 11)
)
UNKNOWN = -(1 << 63)

Anchor = tuple[int, int, int]  # ticks, CLOCK_MONOTONIC ns, CLOCK_REALTIME ns
NO_ANCHOR: Anchor = (0, 0, 0)


@dataclass
class Slot:
    """One event; `records` are its extensions, (type, bytes)."""

    start: int
    end: int = 0
    name: int = 0
    kind: int = RANGE
    flags: int = 0
    scope: int = 0
    payload: int = 0
    records: list[tuple[int, bytes]] = field(default_factory=list)

    def extension(self) -> bytes:
        """The slots behind it."""
        data = b"".join(struct.pack("<BBH", kind, 0, len(value)) + value for kind, value in self.records)
        return data.ljust(-(-len(data) // SLOT_BYTES) * SLOT_BYTES, b"\0")

    def pack(self) -> bytes:
        """Its slot and those behind it."""
        extension = self.extension()
        fixed = struct.pack(
            "<QQIBBBBQ",
            self.start,
            self.end,
            self.name,
            self.kind,
            self.flags,
            self.scope,
            len(extension) // SLOT_BYTES,
            self.payload & (1 << 64) - 1,
        )
        return fixed + extension


@dataclass
class Chunk:
    """One chunk; `data` replaces what the slots would be."""

    slots: list[Slot] = field(default_factory=list)
    stream: int = 0
    sequence: int = 0
    tid: int = 100
    thread_name: int = 0
    id_base: int = 1
    opened: Anchor = (1000, 1000, 5000)
    sealed: Anchor = (2000, 2000, 6000)
    state: int = SEALED
    count: int | None = None
    data: bytes | None = None

    def body(self) -> bytes:
        """The slots' bytes."""
        return b"".join(slot.pack() for slot in self.slots) if self.data is None else self.data

    def pack(self) -> bytes:
        """Header and slots."""
        body = self.body()
        count = len(body) // SLOT_BYTES if self.count is None else self.count
        sealed = NO_ANCHOR if self.state != SEALED else self.sealed
        head = struct.pack(
            "<IIQIIQII", 1, self.stream, self.sequence, self.tid, self.thread_name, self.id_base, count, 0
        )
        head += struct.pack("<QQq", *self.opened) + struct.pack("<QQq", *sealed)
        return head.ljust(CHUNK_HEADER_BYTES, b"\0") + body[: CHUNK_BYTES - CHUNK_HEADER_BYTES]


class Strings:
    """The area of strings; id 0 is the empty one."""

    def __init__(self) -> None:
        self.area = bytearray(8)
        self.ids = {"": 0}

    def id(self, text: str) -> int:
        """The id of a text, added if it is new."""
        if text not in self.ids:
            self.ids[text] = len(self.area) // 8
            data = text.encode()
            record = struct.pack("<I", len(data)) + data
            self.area += record.ljust(-(-len(record) // 8) * 8, b"\0")
        return self.ids[text]


def round_up(value: int, to: int) -> int:
    """The next multiple."""
    return -(-value // to) * to


def arena_fd(
    chunks: list[Chunk],
    strings: Strings | None = None,
    *,
    clock: int = MONOTONIC,
    armed: Anchor = (1000, 1000, 5000),
    latest: Anchor = (9000, 9000, 13000),
    recording: int = 1,
    incarnation: int = 0xABCDEF,
    epoch: int = 7,
    lost: tuple[int, ...] = (),
    recorded: int = 0,
    seals: int = SEALS,
    header: dict[int, bytes] | None = None,
) -> int:
    """A descriptor of a memfd with these chunks. `header`: bytes to put elsewhere in it, by offset."""
    strings = strings or Strings()
    spare = 4
    chunks_at_most = 0
    while True:  # the table of states lies before the chunks and has one entry for each 64 KiB
        arena_bytes = (chunks_at_most + 1) * CHUNK_BYTES
        states, strings_at = PAGE, round_up(PAGE + arena_bytes // CHUNK_BYTES * 4, PAGE)
        chunks_at = round_up(strings_at + STRINGS_BYTES, CHUNK_BYTES)
        count = max(0, arena_bytes - chunks_at) // CHUNK_BYTES
        if count >= len(chunks) + spare:
            break
        chunks_at_most += 1
    head = bytearray(PAGE)
    struct.pack_into("<QIIQQQII", head, 0, MAGIC, 1, PAGE, arena_bytes, incarnation, epoch, 4242, clock)
    struct.pack_into("<QQQQII", head, 48, states, strings_at, STRINGS_BYTES, chunks_at, count, CHUNK_BYTES)
    struct.pack_into("<QQq", head, 88, *armed)
    struct.pack_into("<IIQQq", head, 112, 0, 0, *latest)
    struct.pack_into("<II", head, 144, recording, 0)
    struct.pack_into("<QQQ", head, 152, len(strings.area), 0, recorded)
    struct.pack_into(f"<{len(lost)}Q", head, 176, *lost)
    for at, data in (header or {}).items():
        head[at : at + len(data)] = data
    fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, arena_bytes)
    os.pwrite(fd, head, 0)
    os.pwrite(fd, b"".join(struct.pack("<I", chunk.state) for chunk in chunks), states)
    os.pwrite(fd, strings.area, strings_at)
    for number, chunk in enumerate(chunks):
        os.pwrite(fd, chunk.pack(), chunks_at + number * CHUNK_BYTES)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
