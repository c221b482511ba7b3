"""Looks at a sampled process and its sampler that wake the event loop only when they have found something.

They are taken in the thread of all looks that are repeated (targets/looks.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Final

from profd.targets.looks import looks

LOOKS_SHARE: Final = 0.001  # of the host's cores, that looks at all samplers may take that nobody asked for
RARE_SECONDS: Final = 2.0  # between two of these at most: of a process that ends, samples since the last are nobody's

_shared: Final = set[object]()  # those that share the host


@contextlib.contextmanager
def watch(uid: int, finds: Callable[[], bool], seconds: float, *, nobody_asked: bool) -> Iterator[asyncio.Event]:
    """Look meanwhile, every so many seconds, the first time after these: an event that is set once `finds` says so.

    `nobody_asked`: less often where such looks at all processes would take more than LOOKS_SHARE of the host's cores.
    On an event loop; `finds` is called in a thread.
    """
    loop, news, key = asyncio.get_running_loop(), asyncio.Event(), object()
    first = True

    def look() -> float:
        nonlocal first
        if first:
            first = False
            return seconds
        began = time.thread_time()
        if finds():
            loop.call_soon_threadsafe(news.set)
            return math.inf
        return max(seconds, pause_seconds(time.thread_time() - began)) if nobody_asked else seconds

    if nobody_asked:
        _shared.add(key)
    looking = looks.repeat(uid, look)
    try:
        yield news
    finally:
        looking.end()
        _shared.discard(key)


def pause_seconds(spent: float) -> float:
    """After a look that has taken so many seconds of CPU time, so that all of them keep to their share."""
    part = LOOKS_SHARE * (os.cpu_count() or 1) / max(len(_shared), 1)
    # The child that asks (targets/guarded.py) takes as much.
    return min(2 * spent / part, RARE_SECONDS)
