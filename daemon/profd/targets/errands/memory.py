"""Memory of a file that a target also holds, allocated and freed by a process of the errands.

Both take the inode's lock. A target can keep that lock as long as it likes: it writes to the file from a page that
a file system of its own serves. The next process that wants the lock waits in state D, which SIGKILL does not end.
"""

from __future__ import annotations

from profd.targets.errands.office import Errands, errands


async def allocate(uid: int, fd: int, begin: int, count: int, office: Errands = errands) -> None:
    """Allocate so many bytes of a file of this user's, from `begin` on. Raises NoAnswer, OSError."""
    await office.asked(uid, "allocate", begin, count, fd=fd)


async def free(uid: int, fd: int, begin: int, office: Errands = errands) -> None:
    """Free all memory of a file from `begin` on, a multiple of a page. Raises NoAnswer, OSError."""
    await office.asked(uid, "free", begin, fd=fd)
