"""Many threads, little memory; what is full is counted."""

from __future__ import annotations

import mmap
import struct
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profclient import _recorder
from profclient._recorder import instant, record_function

from tests.support.arena_reader import FREED_OFFSET, SLOTS_PER_CHUNK, Ext, State
from tests.support.recording import Recording, recording


def run(*targets) -> None:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in threads:  # join() returns before a thread has handed its chunk on
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            time.sleep(0)


def test_ten_thousand_threads_one_after_the_other_need_a_few_chunks() -> None:
    def one() -> None:
        with record_function("thread"):
            pass

    tids = set()

    def named() -> None:
        tids.add(threading.get_native_id())
        one()

    with recording(chunks=64) as session:
        for _ in range(10_000):
            run(named)
        arena = session.stop()
    found = arena.named("thread")
    assert len(found) == 10_000
    assert all(event.end for event in found)
    assert {event.tid for event in found} == tids
    # Each takes two slots: itself, and the note that another thread writes from here on.
    assert len(arena.chunks) <= 1 + 2 * 10_000 // SLOTS_PER_CHUNK
    assert sum(arena.lost.values()) == 0


def test_threads_at_once_have_streams_of_their_own(session: Recording) -> None:
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for i in range(100):
            with record_function(f"{i}"):
                pass
        barrier.wait()

    run(*[work] * 8)
    arena = session.stop()
    by_stream = Counter(event.stream for event in arena.events)
    assert list(by_stream.values()) == [100] * 8
    assert len({event.tid for event in arena.events}) == 8
    assert len({event.id for event in arena.events}) == 800


def test_a_range_that_ends_on_another_thread(session: Recording) -> None:
    span = record_function("handed over")
    span.__enter__()
    run(lambda: span.__exit__(None, None, None))
    arena = session.stop()
    event = arena.one("handed over")
    assert event.end
    assert event.tid == threading.get_native_id() != event.end_tid
    assert event.flags & 1


def test_a_range_begun_by_a_thread_that_is_gone(session: Recording) -> None:
    span = record_function("orphan")
    run(span.__enter__)
    run(lambda: instant("takes the chunk over"))
    span.__exit__(None, None, None)
    arena = session.stop()
    assert arena.one("orphan").end
    assert len(arena.patches) == 1


def test_sequences_go_on_through_chunks_and_threads() -> None:
    with recording(chunks=40) as session:
        for _ in range(4):
            run(lambda: [instant("x") for _ in range(SLOTS_PER_CHUNK + 100)])
        arena = session.stop()
    assert len(arena.events) == 4 * (SLOTS_PER_CHUNK + 100)
    sequences = sorted((chunk.stream, chunk.sequence) for chunk in arena.chunks)
    assert sequences == [(0, i) for i in range(len(sequences))]
    assert len({event.id for event in arena.events}) == len(arena.events)
    sealed = [chunk for chunk in arena.chunks if chunk.state is State.SEALED]
    assert sealed
    assert all(chunk.opened[0] <= chunk.sealed[0] for chunk in sealed)


def test_a_long_range_ends_by_a_patch_of_its_own_thread() -> None:
    with recording() as session:
        with record_function("long"):
            for _ in range(2 * SLOTS_PER_CHUNK):
                instant("x")
        arena = session.stop()
    event = arena.one("long")
    assert event.end
    assert event.flags == 0
    assert event.end_tid == event.tid
    assert (event.stream, event.sequence, event.slot) == (0, 0, 0)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(0, 5 * SLOTS_PER_CHUNK))
def test_a_full_arena_counts_every_event_that_it_drops(chunks: int, events: int) -> None:
    with recording(chunks=chunks) as session:
        for _ in range(events):
            with record_function("x"):
                pass
        arena = session.stop()
    assert len(arena.events) == min(events, chunks * SLOTS_PER_CHUNK)
    assert arena.lost["arena_full"] == events - len(arena.events)
    assert _counted(arena.header, arena.chunks) == len(arena.events)


def _counted(header, chunks) -> int:
    return header["recorded"] + sum(chunk.count for chunk in chunks if chunk.state in (State.OPEN, State.ORPHAN))


def test_a_full_arena_records_again_once_the_reader_frees_a_chunk() -> None:
    with recording(chunks=2) as session:
        for _ in range(3 * SLOTS_PER_CHUNK):
            instant("x")
        before = session.read()
        assert before.lost["arena_full"] == SLOTS_PER_CHUNK
        # What the streamer does after an ack: FREE, then one more in Header::freed.
        with mmap.mmap(session.fd, before.header["arena_bytes"]) as memory:
            struct.pack_into("<I", memory, before.header["states_offset"], State.FREE)
            struct.pack_into("<Q", memory, FREED_OFFSET, 1)
        for _ in range(10):
            instant("again")
        arena = session.stop()
    assert len(arena.named("again")) == 10
    assert arena.lost["arena_full"] == SLOTS_PER_CHUNK


def test_extensions_do_not_count_as_events() -> None:
    with recording(chunks=8) as session:
        for i in range(SLOTS_PER_CHUNK):
            with record_function("x", number=i):
                pass
        arena = session.stop()
    assert len(arena.named("x")) == SLOTS_PER_CHUNK
    assert [b'{"number":%d}' % i for i in range(SLOTS_PER_CHUNK)] == [event.ext[Ext.ARGS] for event in arena.named("x")]
    in_sealed = {(chunk.stream, chunk.sequence) for chunk in arena.chunks if chunk.state is State.SEALED}
    assert arena.header["recorded"] == sum((event.stream, event.sequence) in in_sealed for event in arena.events)


def test_a_full_string_area_keeps_events_without_their_names() -> None:
    with recording(strings=4096) as session:
        for i in range(1000):
            instant(f"a rather long name, number {i:5}")
        arena = session.stop()
    nameless = arena.named("")
    assert 0 < len(nameless) < 1000
    assert len(arena.events) == 1000
    assert arena.lost["strings_full"] == len(nameless)


def test_sessions_one_after_the_other_while_threads_record() -> None:
    """Threads go on writing through stops and starts: nothing of one session may appear in another."""
    stop = threading.Event()

    def work() -> None:
        i = 0
        while not stop.is_set():
            i += 1
            with record_function(f"{i % 50}"), record_function("inner"):
                pass

    threads = [threading.Thread(target=work) for _ in range(3)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    recorded = 0
    try:
        for number in range(20):
            with recording(chunks=4) as session:
                while not _recorder.totals()["recorded"]:
                    pass
                arena = session.stop()
                again = session.read()
            assert len(again.events) == len(arena.events), f"session {number} went on after its stop"
            assert {event.name for event in arena.events} <= {"inner", *map(str, range(50))}
            start = arena.header["armed_ticks"]
            assert all(event.start >= start for event in arena.events)
            assert all(event.end == 0 or event.end >= event.start for event in arena.events)
            recorded += len(arena.events)
    finally:
        sys.setswitchinterval(switch)
        stop.set()
        for thread in threads:
            thread.join()
    assert recorded


def test_an_arena_that_is_not_possible_is_refused() -> None:
    for arguments in ({"arena_bytes": 1}, {"arena_bytes": 1 << 40}, {"strings_bytes": 1 << 40}):
        with pytest.raises(RuntimeError, match="is not possible"):
            _recorder.arm(**arguments)
    with recording(), pytest.raises(RuntimeError, match="has an arena already"):
        _recorder.arm()
