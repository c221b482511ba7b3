"""Arenas that tests write, through the native encoder."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Any

from profclient._recorder import Drainer

from tests.support.arena_writer import Chunk, Strings, arena_fd


def drainer(fd: int, *args: Any) -> Drainer:
    try:
        return Drainer(fd, *args)
    finally:
        os.close(fd)


def encoded(chunks: list[Chunk], strings: Strings | None = None, *, compressor: Any = None, **header: Any) -> bytes:
    """All sealed chunks of an arena, one after the other."""
    with closing(drainer(arena_fd(chunks, strings, **header), compressor)) as reader:
        return b"".join(reader.encode(index) or b"" for index, _, _ in reader.sealed())
