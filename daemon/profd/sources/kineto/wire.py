"""Datagrams of libkineto's daemon mode, as bytes. Pure; nothing here is trusted.

    offset  size  field
    0       8     u64 payload size, native order
    8       32    type, ASCII, padded with NUL
    40      n     payload

Client to daemon: `req` (i32 type mask, i32 n, i64 job id, i32 pids[n]) and
`ctxt` (i32 gpu, i32 pid, i64 job id). Daemon to client: `req` with the config
text, or nothing for "no config", and `ctxt` with an i32 instance count.

A client reads a reply of fewer than 40 bytes, or whose size field is wrong, as
uninitialised memory, and one of 0 bytes wedges it for good; so replies are made
only by `reply`, which cannot make one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from profd import limits

DAEMON_NAME: Final = "dynolog"
CLIENT_PREFIX: Final = "dynoconfigclient"

ACTIVITIES: Final = 2  # set: no trace is active in the client, and a config will be taken

_HEADER: Final = struct.Struct("=Q32s")
_POLL: Final = struct.Struct("=iiq")
_CONTEXT: Final = struct.Struct("=iiq")
_INT: Final = struct.Struct("=i")
HEADER_BYTES: Final = _HEADER.size


class Malformed(StrEnum):
    """Why a datagram is not a message."""

    SHORT = "short"
    OVERSIZED = "oversized"
    SIZE_FIELD = "size_field"
    TYPE = "unknown_type"
    PAYLOAD = "payload"


@dataclass(frozen=True, slots=True)
class Poll:
    """A client asks for a config. `pids` are those of its own namespace, leaf first: a hint, never identity."""

    mask: int
    job_id: int
    pids: tuple[int, ...]

    @property
    def takes_config(self) -> bool:
        """Whether a config sent now would be read as one and not silently dropped."""
        return bool(self.mask & ACTIVITIES)


@dataclass(frozen=True, slots=True)
class Context:
    """An old client counts itself on a GPU (not sent since torch 2.13)."""

    gpu: int
    job_id: int


def parse_untrusted(datagram: bytes) -> Poll | Context | Malformed:
    """Parse a client's datagram; never raises."""
    if len(datagram) > limits.KINETO_DATAGRAM_BYTES_MAX:
        return Malformed.OVERSIZED
    if len(datagram) < HEADER_BYTES:
        return Malformed.SHORT
    size, padded = _HEADER.unpack_from(datagram)
    payload = datagram[HEADER_BYTES:]
    if size != len(payload):
        return Malformed.SIZE_FIELD
    kind = padded.split(b"\0", 1)[0]
    if kind == b"req":
        return _parse_poll(payload)
    if kind == b"ctxt":
        if len(payload) != _CONTEXT.size:
            return Malformed.PAYLOAD
        gpu, _pid, job_id = _CONTEXT.unpack(payload)
        return Context(gpu, job_id)
    return Malformed.TYPE


def _parse_poll(payload: bytes) -> Poll | Malformed:
    if len(payload) < _POLL.size:
        return Malformed.PAYLOAD
    mask, count, job_id = _POLL.unpack_from(payload)
    if not 0 <= count <= limits.KINETO_PIDS_MAX or len(payload) != _POLL.size + _INT.size * count:
        return Malformed.PAYLOAD
    pids = struct.unpack_from(f"={count}i", payload, _POLL.size)
    return Poll(mask, job_id, pids)


def poll(mask: int, job_id: int, pids: tuple[int, ...]) -> bytes:
    """The datagram a client would send; `doctor` and tests speak as one."""
    payload = _POLL.pack(mask, len(pids), job_id) + struct.pack(f"={len(pids)}i", *pids)
    return _HEADER.pack(len(payload), b"req") + payload


def reply(config: str) -> bytes:
    """The answer to a poll; an empty `config` says that there is nothing to do.

    ValueError if the text is not ASCII or above its limit.
    """
    try:
        payload = config.encode("ascii")
    except UnicodeEncodeError:
        raise ValueError("a kineto config is ASCII text") from None
    if len(payload) > limits.KINETO_CONFIG_BYTES_MAX:
        raise ValueError(f"a kineto config of {len(payload)} bytes is above the limit")
    return _HEADER.pack(len(payload), b"req") + payload


def context_reply(instances: int) -> bytes:
    """The answer to a `Context`: how many instances share its GPU."""
    return _HEADER.pack(_INT.size, b"ctxt") + _INT.pack(instances)
