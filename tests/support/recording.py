"""Recording into an arena of the test's own process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from profclient import _recorder

from tests.support.arena_reader import Arena, read_arena

RANGES, PYTHON, OPS, GPU, MEMORY = 1, 2, 4, 8, 16
CHUNK = 64 * 1024


class Recording:
    """A session of the recorder; `read` works during it, and after it until the recording is closed."""

    def __init__(self, chunks: int, strings: int, sources: int) -> None:
        # Header, states and strings come first and fill chunks of their own.
        room = (2 * 4096 + strings + CHUNK - 1) // CHUNK * CHUNK
        self.fd = os.dup(_recorder.arm(room + chunks * CHUNK, strings, sources))

    def read(self) -> Arena:
        return read_arena(self.fd)

    def stop(self) -> Arena:
        """Everything that was recorded."""
        _recorder.disarm()
        return self.read()

    def close(self) -> None:
        assert _recorder.release()
        os.close(self.fd)


@contextmanager
def recording(chunks: int = 16, strings: int = 256 * 1024, sources: int = RANGES | MEMORY) -> Iterator[Recording]:
    """Record for the length of a block."""
    session = Recording(chunks, strings, sources)
    try:
        yield session
    finally:
        session.close()
