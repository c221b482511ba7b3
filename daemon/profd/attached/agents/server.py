"""`agent.sock`: where the agents of attached processes connect (docs/agent-protocol.md)."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from typing import Final

from profd.attached.agents.registry import AgentRegistry
from profd.fairness.rare_line import RareLine
from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder, Refused
from profd.limits import AGENT_CONNECTIONS_BURST, AGENT_CONNECTIONS_PER_SECOND
from profd.trust.identify import peer_uid

_PAUSE_SECONDS: Final = 1.0
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
_ACCEPT_BATCH: Final = 64  # per wake-up, so that a flood of connections cannot hold the loop
_RATE: Final = Rate("agent_rate", "connections of agents", AGENT_CONNECTIONS_PER_SECOND, AGENT_CONNECTIONS_BURST)

log = logging.getLogger("profd.agents")


class AgentServer:
    """Accepts on a bound, listening SEQPACKET socket, which it owns, for a registry, which it closes."""

    def __init__(self, listener: socket.socket, registry: AgentRegistry) -> None:
        self._listener = listener
        self._registry = registry
        self._resume: asyncio.TimerHandle | None = None
        self._rate = Rates(_RATE)
        self._too_often = RareLine(log, "agents of a user connect too often")

    def open(self) -> None:
        """Start serving on the running loop."""
        self._listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stop serving and close every connection; the socket's file stays for whoever bound it."""
        if self._resume is not None:
            self._resume.cancel()
        self._drop_listener()
        self._registry.close()

    def listen_on(self, listener: socket.socket) -> None:
        """Accept on another bound, listening socket from now on: the file of the one before is gone."""
        self._drop_listener()
        self._listener = listener
        self.open()

    def _drop_listener(self) -> None:
        """Those who wait there may have sent something already."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._registry.porters.drop(self._listener)

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error.strerror or "")
                return  # or nothing more, or the peer is gone already
            if self._may(connection):
                self._registry.accept(connection)
            else:  # without a word: an agent comes again by itself, later each time
                self._registry.refuse_silently(connection)
            if not self._registry.porters.drop_again():
                self._pause("no process can be started to close connections")
                return

    def _may(self, connection: socket.socket) -> bool:
        """Whether its user has not connected too often; of its process nothing is looked at before."""
        uid = peer_uid(connection)
        try:
            self._rate.take(Holder(uid, uid in (0, os.geteuid())))
        except Refused as error:
            self._too_often.tell(uid, why=str(error))
            return False
        return True

    def _pause(self, why: str) -> None:
        """Leave connections waiting for a moment: the socket stays readable, and would keep the loop busy."""
        log.warning("agents have to wait", extra={"why": why})
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener.fileno())
        self._resume = loop.call_later(_PAUSE_SECONDS, self._listen)
