"""A user whose files cannot be closed, in connections that nobody reads.

Each lies in the queue of a Unix socket, and that in the queue of a connection: whoever closes the connection closes the
file, and the kernel then wants a page to be written that the user's file system never takes. Not even SIGKILL ends
that (docs/decisions/0051-droppers.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.dead_files import DeadFiles, dead_files, why_not

__all__ = ["unclosable", "why_not"]

_DOES = """
opened = [os.open("held.bin", os.O_RDWR) for _ in range({count})]
connections = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in opened]
for file, connection in zip(opened, connections):
    sender, queue = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(sender, [b"x"], [file])
    connection.connect({path!r})
    socket.send_fds(connection, [b"x"], [queue.fileno()])
    sender.close()
    queue.close()
    os.close(file)
for connection in connections:
    connection.close()
os.write(os.open("held.bin", os.O_RDWR), bytes(4096))
"""


@contextlib.contextmanager
def unclosable(path: Path, folder: Path, uid: int, count: int) -> Iterator[DeadFiles]:
    """`count` connections to this socket, which are gone again. Behind the block all can be closed.

    `folder` is made for the file system.
    """
    does = _DOES.format(path=str(path), count=count)
    with dead_files(folder, uid, "WRITE", does=does) as files:
        yield files
