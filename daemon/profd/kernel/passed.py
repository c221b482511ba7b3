"""Descriptors that nobody may pass to us: the last one of a socket that lingers is closed when its owner likes."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

_SO_PASSRIGHTS: Final = 83  # Linux 6.16


def take_none(sock: socket.socket) -> None:
    """Refuse them at the sender (EPERM), also for what a listening socket will accept. Older kernels let them come."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def may_come() -> bool:
    """Whether they come all the same: then others read and close what they may lie in (agents/porters.py)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        except OSError:
            return True
    return False
