"""The header of an event chunk (docs/wire-format.md). Ingest and the decoder check it, each by its own limits."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

MAGIC: Final = b"PFC1"
VERSIONS: Final = (1, 1)  # of the wire format: the oldest and the newest that are taken
CODEC_NONE: Final = 0
CODEC_ZSTD: Final = 1
CRC_FROM: Final = 16  # what the crc covers begins here
HEADER: Final = struct.Struct("<4sHBBIIQIIQQQqIIIIIIQ")


class Header(NamedTuple):
    """The fields as they stand in the chunk: unchecked."""

    magic: bytes
    version: int
    codec: int
    flags: int
    length: int
    crc: int
    incarnation: int
    stream: int
    tid: int
    sequence: int
    id_base: int
    base_ns: int  # CLOCK_MONOTONIC
    real_ns: int  # CLOCK_REALTIME at that moment
    error_ns: int
    pid: int
    events: int
    body_bytes: int
    slots: int
    thread_name: int
    epoch: int

    @property
    def of_known_version(self) -> bool:
        """Its body can be understood."""
        return VERSIONS[0] <= self.version <= VERSIONS[1]
