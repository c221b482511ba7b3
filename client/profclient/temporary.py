"""Where a folder may be made for a while whose name is used again: nobody else can put another in its place.

A file without a name (`tempfile.TemporaryFile`) is nobody else's anywhere, and needs none of this.
"""

from __future__ import annotations

import errno
import tempfile

from profclient.owners import are_ours


def place() -> str:
    """The folder for temporary files. PermissionError names one in which another user can exchange what is made.

    It may be what `su` has left in TMPDIR, or everybody's or a group's to write without the sticky bit.
    """
    found = tempfile.gettempdir()
    if not are_ours(found):
        why = "another user can exchange what is made there. Set TMPDIR to a folder of your own, or to /tmp"
        raise PermissionError(errno.EACCES, why, found)
    return found
