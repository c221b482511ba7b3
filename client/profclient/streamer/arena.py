"""One arena: which chunks are sent, which are on their way, which may be freed."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from profclient._recorder import Drainer

BATCH_BYTES_MAX = 1 << 20  # of one message; the daemon refuses more
AHEAD_BYTES = 15 << 18  # of free chunks that are allocated; with some strings it is what the daemon allows at first
# In the header of a chunk: docs/wire-format.md.
_FLAGS_AT, _WAS_OPEN = 7, 1
_EVENTS_AT, _EVENTS = 72, struct.Struct("<I")


class ArenaTaken(Exception):
    """Another process reads this arena already."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks of one message."""

    data: bytes
    indices: tuple[int, ...]  # of the chunks in the arena


class Arena:
    """A streamer's knowledge of one arena. Owns the descriptor."""

    def __init__(self, fd: int, compress: Callable[[bytes], bytes] | None) -> None:
        """Raises ArenaTaken, ValueError or OSError; the descriptor is closed then."""
        self._fd = fd
        try:
            self._drainer = Drainer(fd, compress)
            # A streamer that was cut off from its daemon may be in the way of its successor: two that
            # free chunks would free each other's. The kernel takes the lock from whoever dies.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ArenaTaken from None
        except BaseException:
            self.close()
            raise
        self.key = (self._drainer.incarnation, self._drainer.epoch)
        self.filled = 0.0  # the share of its chunks that wait to be freed, at the last look
        self._away: set[int] = set()  # sent and not acked
        self._ready: tuple[int, bytes] | None = None  # encoded, and too large for the last batch
        self._opened: dict[int, int] = {}  # events of chunks taken while they were open
        self._lead = 0
        self.lead_is_short = False  # more memory would have been allocated, had it been allowed

    def close(self) -> None:
        """Let go of it. Safe to repeat."""
        if hasattr(self, "_drainer"):
            self._drainer.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def give_back(self) -> None:
        """Everything has been taken: its memory is free, also should the target hold on to it at our expense."""
        self._drainer.give_back()

    @property
    def allocated(self) -> int:
        """Bytes that were allocated ahead."""
        return self._drainer.allocated

    def allow(self, lead: int) -> None:
        """Allocate memory that the target will want, and so many bytes of it at most: they are charged to us."""
        self._lead = lead
        self.tend()

    def tend(self) -> None:
        """Allocate what the target has come nearer to; `batch` does it as well."""
        self.lead_is_short = self._drainer.keep_ahead(AHEAD_BYTES, self._lead)

    def has_sealed(self) -> bool:
        """Something could be sent before the end. A look like that of `batch`, without its work."""
        return bool(self._sealed())

    def batch(self, bytes_max: int, *, last: bool) -> Batch | None:
        """The next message; None when nothing is there that fits. `last`: open chunks are taken, too."""
        pieces: list[bytes] = []
        indices: list[int] = []
        size = 0
        for index, is_open in self._waiting(last=last):
            self.tend()  # the target goes on while we encode
            data = self._encoded(index, is_open=is_open)
            if data is None:
                continue
            if size + len(data) > bytes_max:
                self._ready = (index, data)
                break
            size += len(data)
            pieces.append(data)
            indices.append(index)
            self._away.add(index)
        return Batch(b"".join(pieces), tuple(indices)) if pieces else None

    def stored(self, indices: Sequence[int]) -> None:
        """Free these chunks for the target: the journal has them, or has refused them for good."""
        for index in indices:
            self._drainer.free(index)
            self._away.discard(index)

    def again(self) -> None:
        """The connection is lost: whatever was not acked is to be sent once more."""
        self._away.clear()
        self._ready = None

    def recorded(self) -> int:
        """Events that the target has recorded, those in chunks that it never sealed included."""
        return self._drainer.recorded + sum(self._opened.values())

    def losses(self) -> list[tuple[str, str, int]]:
        """(stage, reason, count) of what will not come."""
        found: Mapping[str, int] = self._drainer.losses()
        return [("streamer" if reason == "bad_chunk" else "target", reason, count) for reason, count in found.items()]

    def _waiting(self, *, last: bool) -> list[tuple[int, bool]]:
        """(index, whether it is open) of the chunks to send, in the order of their streams."""
        chunks = [(index, False) for index in self._sealed()]
        if last:
            chunks += [(index, True) for index, _, _ in self._drainer.open_chunks() if index not in self._away]
        return chunks

    def _sealed(self) -> list[int]:
        self.tend()
        sealed = self._drainer.sealed()
        self.filled = len(sealed) / max(1, self._drainer.chunk_count)
        return [index for index, _, _ in sealed if index not in self._away]

    def _encoded(self, index: int, *, is_open: bool) -> bytes | None:
        if self._ready is not None and self._ready[0] == index:
            data: bytes | None = self._ready[1]
            self._ready = None
            return data
        data = self._drainer.encode(index, open=is_open)
        if data is None:
            self._drainer.free(index)
        elif data[_FLAGS_AT] & _WAS_OPEN:
            (self._opened[index],) = _EVENTS.unpack_from(data, _EVENTS_AT)
        return data
