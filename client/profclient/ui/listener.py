"""A listener on loopback: connections of the server's own user are taken, and nobody else's."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from socketserver import BaseRequestHandler, TCPServer, ThreadingMixIn
from typing import Any, Final

from profclient.ui.gate import Names
from profclient.ui.peers import Peers

CONNECTIONS_MAX: Final = 32
"""A browser opens six to one server."""
QUEUED_MAX: Final = 1024
"""Connections that wait to be taken. Where all places are strangers', a browser's own tries again after a second."""
_TOLD_MAX: Final = 16  # uids of others that are named on the terminal


class PageListener(ThreadingMixIn, TCPServer):
    """One port. `take` is called when a connection waits; each is answered in a thread."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = QUEUED_MAX

    def __init__(
        self, address: str, port: int, handler: type[BaseRequestHandler], peers: Peers, say: Callable[[str], None]
    ) -> None:
        """`peers`: who looks up whose a connection is; `say`: of remarks for whoever began the server.

        Raises OSError where the port cannot be had.
        """
        self._peers, self._say = peers, say
        super().__init__((address, port), handler)
        self.address, self.port = str(self.server_address[0]), int(self.server_address[1])
        self.names = Names(self.address, self.port)
        self._uid = os.geteuid()
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._told: set[int | None] = set()

    def take(self) -> None:
        """Take the connection that waits."""
        self._handle_request_noblock()  # type: ignore[attr-defined]  # as `serve_forever`; typeshed lacks it

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Before anything is read from it: it must be a connection of our own user."""
        try:
            uid = self._peers.uid_of(request)
        except OSError as error:
            self._tell(None, f"connections are refused: the kernel does not say whose they are ({error})")
            return False
        if uid != self._uid and uid is not None:
            self._tell(
                uid,
                f"a connection of uid {uid} was refused: this page is for uid {self._uid} alone. Run profctl ui as the "
                "user whose browser it is.",
            )
        return uid == self._uid

    def _tell(self, uid: int | None, text: str) -> None:
        if uid not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(uid)
            self._say(text)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, of which there are so many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)
