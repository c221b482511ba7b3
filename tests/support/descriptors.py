"""What a test leaves open in its own process: nothing.

Their numbers and their count say less: descriptors of earlier tests close meanwhile, gRPC's by threads of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from profd.targets import procfs

from tests.support.in_proc import descriptors
from tests.support.waiting import until


def now_open() -> Counter[str]:
    """What this process has open: sockets and pipes by their inodes."""
    return Counter(descriptors(os.getpid()))


def opened_since(before: Counter[str]) -> Counter[str]:
    """What was opened since, and is not closed. On a busy host what looks at a process may end only behind its look:
    the next look lets go of what that had open.
    """
    if now_open() - before:
        procfs.stat_of(os.getppid())
    return now_open() - before


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """What the block opens in this process is closed behind it, or a little later."""
    before = now_open()
    yield
    try:
        until(lambda: not opened_since(before), "all is closed")
    except AssertionError:
        raise AssertionError(f"still open: {opened_since(before)}") from None
