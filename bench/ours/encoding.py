"""What a streamer does with an arena, and what only reading the arena costs. Runs in a process of its own."""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

from profclient import _recorder, record_function
from profclient.streamer.arena import BATCH_BYTES_MAX, Arena
from profclient.streamer.compress import compressor

REPEAT = 7
SLOT_BYTES = 32
NAMES = [f"layer.{number}" for number in range(40)]


def arena(events: int) -> dict[str, Any]:
    """CPU ns per event of draining, encoding and compressing an arena of nested ranges; bytes per event."""
    recorder: Any = _recorder
    fd: int = recorder.arm(arena_bytes=(events * SLOT_BYTES * 9 // 8 + (4 << 20)) >> 20 << 20)
    recorder.populate()
    _record(events)
    recorder.disarm()
    ours, sizes = zip(*(_drained(fd) for _ in range(REPEAT)), strict=True)
    return {"ours_ns": min(ours) / events, "floor_ns": _read(fd, events) / events, "bytes": sizes[0] / events}


def _record(events: int) -> None:
    for number in range(events // 4):
        with record_function("step"):
            with record_function(NAMES[number % 40]):
                pass
            with record_function("optimizer"), record_function("kernel"):
                pass


def _drained(fd: int) -> tuple[int, int]:
    """CPU ns and bytes. Nothing is freed, so the arena stays as it is."""
    reader = Arena(os.dup(fd), compressor())
    size = 0
    begin = time.thread_time_ns()
    while (batch := reader.batch(BATCH_BYTES_MAX, last=True)) is not None:
        size += len(batch.data)
    taken = time.thread_time_ns() - begin
    reader.close()
    return taken, size


def _read(fd: int, events: int) -> int:
    """CPU ns of copying the slots out, 64 KiB at a time."""
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        begin = time.thread_time_ns()
        for at in range(0, events * SLOT_BYTES, 1 << 16):
            mapped[at : at + (1 << 16)]
        return time.thread_time_ns() - begin
