"""The daemon's own reading of an arena's header (native/recorder/arena.h): no more than it must."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = 0x31414E4552414650
_CHUNKS_AT: Final = 72
_RECORDED_AT: Final = 168
_CHUNK_BYTES: Final = 64 * 1024
_REASONS: Final = (
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


@dataclass(frozen=True, slots=True)
class Counters:
    """The target's word. `recorded` leaves out what stands in chunks that were not sealed."""

    recorded: int
    lost: tuple[tuple[str, str, int], ...]  # stage, reason, events


def counters_untrusted(fd: int) -> Counters | None:
    """The counters now; None if this is no arena. pread: a file that was cut short gives less, not a signal."""
    size = 8 * (1 + len(_REASONS))
    try:
        head, data = os.pread(fd, 8, 0), os.pread(fd, size, _RECORDED_AT)
    except OSError:
        return None
    if len(data) != size or head != struct.pack("<Q", _MAGIC):
        return None
    recorded, *lost = struct.unpack(f"<{1 + len(_REASONS)}Q", data)
    told = tuple(("target", reason, count) for reason, count in zip(_REASONS, lost, strict=True) if count)
    return Counters(recorded, told)


def chunks_untrusted(fd: int) -> tuple[int, int] | None:
    """Where the chunks begin and end; None if this is no arena. Raises OSError. Both are within the file."""
    size = os.fstat(fd).st_size
    head, data = os.pread(fd, 8, 0), os.pread(fd, 8, _CHUNKS_AT)
    if head != struct.pack("<Q", _MAGIC) or len(data) != 8:
        return None
    (begin,) = struct.unpack("<Q", data)
    return (begin, size) if begin % _CHUNK_BYTES == 0 and 0 < begin < size else None
