"""Memory of a file that a target holds, too, allocated and freed by a process of the errands.

Both take the inode's lock. A target that writes to the same file from a page which a file system of its own serves has
that lock for as long as it likes, and whoever asks for it waits in state D: SIGKILL does not end that.
"""

from __future__ import annotations

from typing import Any

from profd import limits
from profd.targets.errands import words
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import NUMBERS, Errands, errands


async def allocate(uid: int, fd: int, begin: int, count: int, office: Errands = errands) -> None:
    """So many bytes of a file of this user's, from `begin` on. Raises NoAnswer, OSError."""
    await _asked(office, uid, fd, "allocate", begin, count)


async def free(uid: int, fd: int, begin: int, office: Errands = errands) -> None:
    """All memory of it from `begin` on, which is a multiple of a page. Raises NoAnswer, OSError."""
    await _asked(office, uid, fd, "free", begin)


async def _asked(office: Errands, uid: int, fd: int, what: str, *arguments: Any) -> None:
    number = next(NUMBERS)
    child = await office.holder(uid, number)
    try:
        async with child.lock:
            await child.say([what, *arguments], fd)
            said = await child.hear(limits.ERRAND_SECONDS)
    finally:
        office.let_go(child, number)
    if said[0] == words.FAILED:
        raise OSError(int(said[1]), str(said[2]))
    if said[0] != words.ANSWER:
        child.end(kill=True)
        raise NoAnswer(f"it said {said[0]!r}")
