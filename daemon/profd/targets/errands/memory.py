"""Memory of a file that a target holds, too, allocated and freed by a process of the errands.

Both take the inode's lock. A target that writes to the same file from a page which a file system of its own serves has
that lock for as long as it likes, and whoever asks for it waits in state D: SIGKILL does not end that.
"""

from __future__ import annotations

from profd.targets.errands.office import Errands, errands


async def allocate(uid: int, fd: int, begin: int, count: int, office: Errands = errands) -> None:
    """So many bytes of a file of this user's, from `begin` on. Raises NoAnswer, OSError."""
    await office.asked(uid, "allocate", begin, count, fd=fd)


async def free(uid: int, fd: int, begin: int, office: Errands = errands) -> None:
    """All memory of it from `begin` on, which is a multiple of a page. Raises NoAnswer, OSError."""
    await office.asked(uid, "free", begin, fd=fd)
