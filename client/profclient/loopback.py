"""An address of this machine at which nobody can have been before.

A browser keeps, for each address and port, files, service workers and open pages of whoever served there. Any user of
the host could have: on 127.0.0.1 they would meet our page, and its key.
The kernel gives all of 127.0.0.0/8 to loopback.
"""

from __future__ import annotations

import secrets
import socket
from typing import Final

COMMON: Final = "127.0.0.1"
"""Of the near end of a tunnel: there the port is the user's own."""


def own_address() -> str:
    """One of 16 million, by chance; none that systems give to services of their own (127.0.0.53, 127.0.1.1)."""
    return f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"


def tunnel(address: str, ports: list[int]) -> str:
    """The command that a person gives on another machine, to reach a server of this one at COMMON there."""
    ways = " ".join(f"-L {port}:{address}:{port}" for port in ports)
    return f"ssh {ways} {socket.gethostname()}"
