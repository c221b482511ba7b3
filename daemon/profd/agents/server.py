"""`agent.sock`: where the agents of attached processes connect (docs/agent-protocol.md)."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from profd.agents.registry import Registry

_ACCEPT_BATCH: Final = 64  # per wake-up, so that a flood of connections cannot hold the loop


class AgentServer:
    """Accepts on a bound, listening SEQPACKET socket, which it owns, for a registry, which it closes."""

    def __init__(self, listener: socket.socket, registry: Registry) -> None:
        self._listener = listener
        self._registry = registry

    def open(self) -> None:
        """Start serving on the running loop."""
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop serving and close every connection; the socket's file stays for whoever bound it."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
        self._registry.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nothing more, or the peer is gone already
                return
            self._registry.accept(connection)
