"""The way to a profiler server. Such a server is its user's program, and may be hostile.

gRPC's own connection would read whatever comes, for as long as something comes: behind the end of each call, and of the
channel, too. A header block that is sent again and again keeps a core, for ever. So the connection is ours, and gRPC
has its other end by a socket that nobody else can reach; between them is a line (native/host/line.h) with limits.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Final

from profd import limits
from profd._host import Line
from profd.fairness.frame_rates import OF_A_USER, FrameRates
from profd.kernel.peer import peer_of

_QUEUE: Final = 64  # gRPC's connection, and whoever else has read the name in /proc/net/unix meanwhile
_FAMILIES: Final = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}


@dataclass(frozen=True, slots=True)
class LineLimits:
    """The limits of one line, as native/host/line.h has them."""

    header_block_bytes: int = limits.HEADER_BLOCK_BYTES_MAX
    header_fields: int = limits.HEADER_FIELDS_MAX
    rates: FrameRates = OF_A_USER


class Way:
    """One connection to a server, and the name by which gRPC reaches it: `target`. Close it.

    There is never a second one: whoever listens there when it has ended is somebody else.
    """

    def __init__(self) -> None:
        name = f"profd-{secrets.token_hex(16)}"
        self.target = f"unix-abstract:{name}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._listener.bind(f"\0{name}")
        self._listener.listen(_QUEUE)
        self._line: Line | None = None
        self._was_foreign = False

    @property
    def foreign(self) -> bool:
        """The server has sent what no server of gRPC does, and that was the end."""
        return self._was_foreign or (self._line is not None and self._line.foreign)

    async def open(self, server: socket.socket, allowed: LineLimits | None = None) -> None:
        """Lead gRPC, which is connecting to `target`, to this server; the socket stays the caller's. Raises OSError."""
        client = await self._client()
        self._listener.shutdown(socket.SHUT_RDWR)  # gRPC may not come again; the name stays ours
        try:
            self._line = Line(client.fileno(), server.fileno(), allowed or LineLimits())
        finally:
            client.close()

    async def _client(self) -> socket.socket:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            if peer_of(client).pid == os.getpid():
                return client
            client.close()

    def close(self) -> None:
        """End the connection, whatever is still to come. Safe to repeat."""
        if self._line is not None:
            self._was_foreign = self._line.foreign
            self._line.end()
            self._line = None  # closes both: a server that sends on would wait for room, and know nothing
        self._listener.close()


async def connected(address: str) -> socket.socket:
    """A connection to an address as grpc names it, "ipv4:127.0.0.1:9999". Raises OSError."""
    family, _, rest = address.partition(":")
    host, _, port = rest.rpartition(":")
    server = socket.socket(_FAMILIES[family], socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        await asyncio.get_running_loop().sock_connect(server, (host.strip("[]"), int(port)))
    except BaseException:
        server.close()
        raise
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return server
