"""The file that a process wrote which was recorded by torch's own profiler: taken from where it says it is.

The path comes from the target and is hostile: it is resolved inside the target's own root and through no link, and
must be a regular file of the target's uid (`targets/pickup.py`).
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import Final

from profd.model.capture import RawFile
from profd.sources.base import Session
from profd.targets.errands.directory import Directory, SilentDirectory
from profd.targets.identity import Accepted
from profd.targets.pickup import NotTaken

_NAME: Final = "torch.json"


async def take(path: str, accepted: Accepted, session: Session) -> tuple[RawFile, str] | NotTaken:
    """Copy it into the journal, and a sentence if that is not all of it; else the target's own is removed."""
    opened = await Directory.of(accepted, posixpath.dirname(path))
    if isinstance(opened, NotTaken):
        return opened
    try:
        name = posixpath.basename(path)
        taken = await opened.take(name, session.directory / _NAME, session.claim, session.file_bytes_max)
        if isinstance(taken, NotTaken):
            return taken
        if taken.cut:
            return RawFile(str(taken.path), "chrome"), f"{taken.cut}; what was taken is kept, and the file stays"
        with contextlib.suppress(SilentDirectory):
            await opened.remove(name, taken.inode)
        return RawFile(str(taken.path), "chrome"), ""
    finally:
        opened.close()
