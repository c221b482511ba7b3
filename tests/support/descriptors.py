"""What processes have open, and that a test leaves nothing open.

Their numbers and their count say less: descriptors of earlier tests close meanwhile, gRPC's by threads of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import until


def descriptors(pid: int) -> list[str]:
    """What the descriptors of a process are; it may be closing some."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


def now_open() -> Counter[str]:
    """What this process has open: sockets and pipes by their inodes."""
    return Counter(descriptors(os.getpid()))


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """What the block opens in this process is closed behind it."""
    before = now_open()
    yield
    until(lambda: not now_open() - before, f"all is closed that was not open before: {before}")
