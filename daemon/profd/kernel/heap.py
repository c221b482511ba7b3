"""The memory that glibc's malloc keeps once this process has freed it.

Two habits of malloc make a daemon larger the longer it runs, and it frees all that it takes:

- malloc learns from the first large block that is freed: from then on it takes blocks of that size from its heaps. Such
  a block is CPython's table of interned strings, 1.9 MB. `pathlib` interns each name of a path, and names of captures
  and traces are ever new, so the table fills and is made anew every two thousand captures: in a heap of another thread
  each time, which keeps the room.
- malloc makes a heap for each thread, up to eight for each core. What one thread frees no other takes.
"""

from __future__ import annotations

import ctypes
from typing import Final

# Less than that table ever has in the daemon (0.96 MB), and more than a piece of an answer (RPC_CHUNK_BYTES).
LARGE_BLOCK_BYTES: Final = 768 * 1024
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def keep_little() -> bool:
    """Have blocks of LARGE_BLOCK_BYTES and more go back to the kernel once they are freed, and threads share one heap.

    To be called before there are threads: heaps that they have stay. False where the C library cannot be told so.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)) and bool(mallopt(_M_ARENA_MAX, 1))
