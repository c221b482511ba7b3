"""Threads for what calls of users wait for: the disk, the kernel, other processes.

The event loop's own threads (`asyncio.to_thread`) are few, and serve who asked first. So a user's work goes to others,
of which each user has some. What the daemon does for itself, and for who runs the host, stays on the loop's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from profd.fairness.few import Few
from profd.fairness.shares import Holder
from profd.fairness.to_the_end import to_the_end
from profd.limits import CALL_THREADS, CALL_THREADS_PER_UID

Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")


class _Threads:
    def __init__(self) -> None:
        self.few = Few(CALL_THREADS_PER_UID, CALL_THREADS)
        self.pool = ThreadPoolExecutor(CALL_THREADS, "profd-calls")


_of_loops: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, _Threads]()


async def in_thread(holder: Holder, work: Callable[[*Given], Answer], *given: *Given) -> Answer:
    """What it returns, done by a thread of this user's share.

    A cancelled caller waits for its end: until then it counts, and uses what it was given (a descriptor, say).
    """
    if holder.reserved:
        return await to_the_end(asyncio.to_thread(work, *given))
    loop = asyncio.get_running_loop()
    threads = _of_loops.get(loop)
    if threads is None:
        threads = _of_loops[loop] = _Threads()
    async with threads.few.place(holder.uid):
        context = contextvars.copy_context()
        return await to_the_end(_done(loop, threads.pool, lambda: context.run(work, *given)))


async def _done(loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor, work: Callable[[], Answer]) -> Answer:
    return await loop.run_in_executor(pool, work)
