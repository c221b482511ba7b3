"""Who is at the other end of a socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import profd
from profd.kernel.peer import peer_of


def test_the_kernel_says_who_connected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours) == (os.getpid(), os.geteuid(), os.getegid())


def test_it_is_asked_in_one_place() -> None:
    """A second one would read the same bytes in its own way."""
    room = Path(profd.__file__).parent
    asking = [path.relative_to(room) for path in room.rglob("*.py") if "socket.SO_PEERCRED" in path.read_text()]
    assert asking == [Path("kernel/peer.py")]
