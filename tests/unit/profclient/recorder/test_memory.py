"""What of an arena is touched, by whom, and what happens where there is no memory for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from profclient import _recorder
from profclient._recorder import Drainer, instant

from tests.support import arena_writer as writer
from tests.support.arena_reader import SLOTS_PER_CHUNK
from tests.support.recording import CHUNK, recording

STRINGS_AHEAD = 2 * CHUNK  # of an arena with few strings
MiB = 1 << 20


def resident(fd: int) -> int:
    """Bytes of the arena that have memory."""
    return os.fstat(fd).st_blocks * 512


def fill(chunks: float) -> None:
    for _ in range(round(chunks * SLOTS_PER_CHUNK)):
        instant("x")


def sealed(drainer: Drainer) -> list[int]:
    """Indices, in the order in which one thread has filled them."""
    return [index for index, _, _ in drainer.sealed()]


def test_arming_touches_next_to_nothing() -> None:
    with recording(chunks=1024) as session:
        armed = resident(session.fd)
        assert armed <= 200 * 1024
        instant("x")
        assert resident(session.fd) == armed


def test_the_lowest_free_chunk_is_taken() -> None:
    with recording(chunks=12) as session:
        drainer = Drainer(session.fd)
        fill(4.5)
        assert sealed(drainer) == [0, 1, 2, 3]
        drainer.free(2)
        drainer.free(0)
        fill(3)
        assert sealed(drainer) == [1, 3, 4, 0, 2]  # 5 is the one that is written now
        drainer.free(4)
        fill(1)
        assert sealed(drainer) == [1, 3, 0, 2, 5]
        assert sum(session.stop().lost.values()) == 0


def test_an_arena_that_is_drained_in_time_stays_small() -> None:
    with recording(chunks=64) as session:
        drainer = Drainer(session.fd)
        fill(0.5)
        before = resident(session.fd)
        for _ in range(100):
            fill(1)
            for index in sealed(drainer):
                drainer.free(index)
        assert resident(session.fd) <= before + 8 * CHUNK
        assert sum(session.stop().lost.values()) == 0


def test_all_chunks_are_found_whatever_is_freed_meanwhile() -> None:
    with recording(chunks=8) as session:
        drainer = Drainer(session.fd)
        fill(8)
        assert sum(session.read().lost.values()) == 0
        instant("beyond")
        for index in (7, 3):
            drainer.free(index)
        fill(2)
        assert sealed(drainer) == [0, 1, 2, 4, 5, 6, 3]
        assert session.stop().lost["arena_full"] == 1


# --- memory that the reader allocates ---


def test_the_reader_allocates_so_much_ahead_and_no_more_than_it_may() -> None:
    with recording(chunks=64) as session:
        drainer = Drainer(session.fd)
        before = resident(session.fd)
        assert not drainer.keep_ahead(8 * CHUNK, MiB)
        assert drainer.allocated == 8 * CHUNK + STRINGS_AHEAD
        assert resident(session.fd) == before + drainer.allocated - 2 * CHUNK  # the first of each were there
        assert not drainer.keep_ahead(8 * CHUNK, MiB)
        allocated = resident(session.fd)
        fill(3.5)
        assert resident(session.fd) == allocated  # the target took what was there
        assert not drainer.keep_ahead(8 * CHUNK, MiB)
        assert drainer.allocated == 12 * CHUNK + STRINGS_AHEAD  # four are taken
        assert drainer.keep_ahead(20 * CHUNK, MiB)  # there was more to allocate
        assert drainer.allocated == MiB
        session.stop()
        assert not drainer.keep_ahead(20 * CHUNK, 64 * MiB)  # the target wants nothing any more
        assert drainer.allocated == MiB


def test_a_target_that_gets_near_the_end_has_more_ahead_of_it() -> None:
    with recording(chunks=200) as session:
        drainer = Drainer(session.fd)
        drainer.keep_ahead(8 * CHUNK, 64 * MiB)
        for ahead in (16, 32, 64, 64):
            fill(ahead)  # more than there is
            drainer.keep_ahead(8 * CHUNK, 64 * MiB)
            taken = len(sealed(drainer))
            assert drainer.allocated >= min(200, taken + ahead) * CHUNK
            assert drainer.allocated <= (min(200, taken + 1 + ahead)) * CHUNK + STRINGS_AHEAD


def test_nothing_is_allocated_where_nothing_is_allowed() -> None:
    with recording(chunks=64) as session:
        drainer = Drainer(session.fd)
        before = resident(session.fd)
        assert drainer.keep_ahead(8 * CHUNK, 0)
        assert drainer.keep_ahead(8 * CHUNK, CHUNK - 1)
        assert (drainer.allocated, resident(session.fd)) == (0, before)


def test_the_whole_arena_is_enough() -> None:
    with recording(chunks=4) as session:
        drainer = Drainer(session.fd)
        assert not drainer.keep_ahead(64 * CHUNK, 64 * MiB)
        assert drainer.allocated == 4 * CHUNK + STRINGS_AHEAD


def test_memory_is_given_back_though_the_target_keeps_the_arena() -> None:
    with recording(chunks=64) as session:
        fill(3)
        drainer = Drainer(session.fd)
        drainer.keep_ahead(8 * CHUNK, MiB)
        lost = session.stop().lost
        drainer.give_back()
        assert resident(session.fd) <= 16 * 1024
        assert (session.read().lost, drainer.losses()) == (lost, {})


@pytest.mark.parametrize("state", [writer.OPEN, writer.SEALED, 77])
def test_a_target_that_writes_what_it_likes_gets_no_more_than_it_may(state: int) -> None:
    chunks = [writer.Chunk(state=state, data=b"") for _ in range(40)]
    tail = (1 << 64) - 1
    fd = writer.arena_fd(chunks, header={152: tail.to_bytes(8, "little")})
    drainer = Drainer(fd)
    for _ in range(100):
        assert drainer.keep_ahead(MiB, MiB)
    assert drainer.allocated == MiB
    os.close(fd)


# --- where there is none ---

# Answers madvise(MADV_POPULATE_WRITE) with an error, as the kernel does where it has no memory, or does not know it.
PROGRAM = """
import ctypes, json, os, platform, struct, sys
from profclient import _recorder
from profclient._recorder import instant
error, when = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def refuse():
    madvise = {"x86_64": 28, "aarch64": 233}[platform.machine()]
    load, equal, done = 0x20, 0x15, 0x06
    code = ((load, 0, 0, 0), (equal, 0, 3, madvise), (load, 0, 0, 32), (equal, 0, 1, 23),
            (done, 0, 0, 0x50000 | error), (done, 0, 0, 0x7FFF0000))
    filter = b"".join(struct.pack("=HBBI", *line) for line in code)
    text = ctypes.create_string_buffer(filter, len(filter))
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", len(code), ctypes.addressof(text)), 16)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
if when == "before":
    refuse()
try:
    fd = os.dup(_recorder.arm(arena_bytes=2 << 20, strings_bytes=1 << 18))
except RuntimeError as why:
    print(json.dumps(str(why)))
    sys.exit()
instant("first")
if when == "after":
    refuse()
for number in range(5000):
    instant(f"{number:0100}" if number < 2000 else "first")
_recorder.disarm()
print(json.dumps({**_recorder.totals(), "resident": os.fstat(fd).st_blocks * 512}))
"""


def refused(error: int, when: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(error), when], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_an_arena_without_memory_is_not_made() -> None:
    assert "no memory for an arena of 2097152 bytes" in str(refused(12, "before"))


@pytest.mark.parametrize("error", [12, 14])
def test_what_there_is_no_memory_for_is_lost_and_never_written(error: int) -> None:
    told = refused(error, "after")
    assert isinstance(told, dict)
    assert told["recorded"] == SLOTS_PER_CHUNK  # of the chunk that was there
    assert told["recorded"] + told["arena_full"] == 5001
    assert told["strings_full"] > 0
    assert told["resident"] <= 200 * 1024


def test_where_it_cannot_be_asked_for_memory_is_touched_as_ever() -> None:
    told = refused(22, "before")
    assert isinstance(told, dict)
    assert told["recorded"] == 5001


def test_measurements_can_have_the_whole_arena() -> None:
    with recording(chunks=16) as session:
        _recorder.populate()
        assert resident(session.fd) == os.fstat(session.fd).st_size
