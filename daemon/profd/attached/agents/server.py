"""`agent.sock`: where the agents of attached processes connect (docs/agent-protocol.md)."""

from __future__ import annotations

import logging
import socket
from typing import Final

from profd.attached.agents.registry import AgentRegistry
from profd.fairness.rare_line import RareLine
from profd.fairness.rates import Rate
from profd.fairness.reception import Reception
from profd.kernel.peer import Peer
from profd.limits import AGENT_CONNECTIONS_BURST, AGENT_CONNECTIONS_PER_SECOND

_RATE: Final = Rate("agent_rate", "connections of agents", AGENT_CONNECTIONS_PER_SECOND, AGENT_CONNECTIONS_BURST)

log = logging.getLogger("profd.agents")


class AgentServer:
    """Accepts on a bound, listening SEQPACKET socket, which it owns, for a registry, which it closes."""

    def __init__(self, listener: socket.socket, registry: AgentRegistry) -> None:
        self._listener = listener
        self._registry = registry
        self._too_often = RareLine(log, "agents of a user connect too often")
        # Without a word to who comes too often: an agent comes again by itself, later each time.
        self._reception = Reception(_RATE, self._come, closing=registry.porters.droppers, refused=self._refused)

    def open(self) -> None:
        """Start serving on the running loop."""
        self._reception.listen(self._listener)

    def close(self) -> None:
        """Stop serving and close every connection; the socket's file stays for whoever bound it."""
        self._reception.close()
        self._registry.close()

    def listen_on(self, listener: socket.socket) -> None:
        """Accept on another bound, listening socket from now on: the file of the one before is gone."""
        self._reception.listen(listener)

    def _come(self, connection: socket.socket, peer: Peer) -> None:
        self._registry.accept(connection, peer)

    def _refused(self, count: int, uid: int) -> None:
        self._registry.counts["refused"] += count
        self._too_often.tell(uid, count=count, why=f"more than {_RATE.per_second:g} a second")
