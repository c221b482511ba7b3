"""Which chunks of an arena are sent, and when they are freed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest
from profclient.streamer.arena import Arena, ArenaTaken
from profd.attached.ingest.arena import Counters, counters_untrusted
from profd.attached.ingest.chunk import split_untrusted

from tests.support import arena_writer as writer
from tests.support.ingest import arena_chunks


def names(data: bytes) -> list[tuple[int, int]]:
    return [(chunk.stream, chunk.sequence) for chunk in split_untrusted(memoryview(data))]


def test_what_is_away_is_not_sent_twice_and_again_after_a_lost_connection() -> None:
    arena = Arena(writer.arena_fd(list(arena_chunks(1, 3))), None)
    batch = arena.batch(1 << 20, last=False)
    assert batch is not None
    assert names(batch.data) == [(0, 0), (0, 1), (0, 2)]
    assert arena.batch(1 << 20, last=False) is None
    arena.again()
    assert arena.batch(1 << 20, last=False) == batch
    arena.stored(batch.indices)
    arena.again()
    assert arena.batch(1 << 20, last=False) is None
    arena.close()
    arena.close()


def test_batches_keep_to_their_size() -> None:
    arena = Arena(writer.arena_fd(list(arena_chunks(1, 4, events=100))), None)
    whole = arena.batch(1 << 20, last=False)
    assert whole is not None
    arena.again()
    (first, *_) = split_untrusted(memoryview(whole.data))
    assert arena.batch(first.end - 1, last=False) is None
    small = arena.batch(first.end, last=False)
    assert small is not None
    assert names(small.data) == [(0, 0)]
    arena.close()


def test_open_chunks_come_last_and_are_counted_as_recorded() -> None:
    chunks = list(arena_chunks(1, 3))
    chunks[2].state = writer.ORPHAN
    arena = Arena(writer.arena_fd(chunks, recording=0, recorded=16), None)
    batch = arena.batch(1 << 20, last=False)
    assert batch is not None
    assert names(batch.data) == [(0, 0), (0, 1)]
    assert arena.recorded() == 16
    batch = arena.batch(1 << 20, last=True)
    assert batch is not None
    assert names(batch.data) == [(0, 2)]
    assert arena.recorded() == 24
    arena.close()


def test_unreadable_chunk_is_counted_and_does_not_stay() -> None:
    chunks = list(arena_chunks(1, 2))
    chunks[0].id_base = 0
    arena = Arena(writer.arena_fd(chunks, lost=(0, 3)), None)
    batch = arena.batch(1 << 20, last=False)
    assert batch is not None
    assert names(batch.data) == [(0, 1)]
    assert {(stage, reason): count for stage, reason, count in arena.losses() if count} == {
        ("streamer", "bad_chunk"): 1,
        ("target", "strings_full"): 3,
    }
    arena.close()


def test_descriptor_of_something_else_is_refused_and_closed() -> None:
    fd = os.memfd_create("nothing")
    with pytest.raises(ValueError, match="no arena"):
        Arena(fd, None)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_one_reader_at_a_time() -> None:
    fd = writer.arena_fd([])
    script = "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(fd)],
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(ArenaTaken):
        Arena(os.dup(fd), None)
    other.communicate()
    Arena(os.dup(fd), None).close()
    os.close(fd)


def test_counters_as_the_daemon_reads_them() -> None:
    fd = writer.arena_fd([], recorded=12, lost=(1, 0, 3))
    assert counters_untrusted(fd) == Counters(12, (("target", "arena_full", 1), ("target", "too_large", 3)))
    os.close(fd)
    assert counters_untrusted(fd) is None
    empty = os.memfd_create("nothing")
    fcntl.fcntl(empty, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    assert counters_untrusted(empty) is None
    os.ftruncate(empty, 4096)
    assert counters_untrusted(empty) is None
    os.close(empty)
