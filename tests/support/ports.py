"""Ports of loopback for servers that take none of their own choice.

Linux hands a port that was found free and let go to anybody else who asks, or connects, before the server binds it.
These lie below those that it hands out, and no other test process takes one while ours lives.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 1024


def free_ports(count: int) -> list[int]:
    """So many, each ours from now on. AssertionError where there are fewer."""
    found = list(islice(_ours(), count))
    assert len(found) == count, f"{_RANGE} leaves no port below it that is free"
    return found


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]


def _ours() -> Iterator[int]:
    lowest_handed_out = int(_RANGE.read_text().split()[0])
    return (port for port in range(lowest_handed_out - 1, _LOWEST, -1) if _lock(port) and _is_free(port))


def _lock(port: int) -> bool:
    """Name it ours, in the network namespace in which it is a port. The kernel forgets names of processes that end."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0profd-tests-port-{port}")
    except OSError:
        lock.close()
        return False
    lock.detach()  # open as long as this process lives
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
