"""Takes connections on loopback: those of the server's own user, and nobody else's."""

from __future__ import annotations

import html
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final

from profclient.loopback import COMMON, own_address
from profclient.ui.asking import Library
from profclient.ui.gate import Keys, Names
from profclient.ui.now import Watches
from profclient.ui.peers import Peers

UNUSED_SECONDS: Final = 8 * 3600.0
CONNECTIONS_MAX: Final = 32
"""A browser opens six to one server."""
QUEUED_MAX: Final = 1024
"""Connections that wait to be taken. Where all places are strangers', a browser's own tries again after a second."""
_TOLD_MAX: Final = 16  # uids of others that are named on the terminal

_ENTRANCE: Final = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>profctl ui</title>
<form method="post" action="{url}enter">
<input type="hidden" name="key" value="{key}">
<button>Open the page of profctl ui</button>
</form>
<script>document.forms[0].submit();</script>
"""


class PageServer(ThreadingMixIn, TCPServer):
    """Serves until `stop`, or until nobody has used it for so long."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = QUEUED_MAX

    def __init__(
        self,
        library: Library,
        page: str = "",
        port: int = 0,
        unused_seconds: float = UNUSED_SECONDS,
        say: Callable[[str], None] = lambda text: None,
        write: bool = False,
    ) -> None:
        """`page`: where the browser begins, such as `/trace/ID`; `say`: of remarks for whoever began it; `write`: the
        page may begin and end captures.

        Raises OSError where the port cannot be had, or the kernel does not tell users apart.
        """
        from profclient.ui.handler import Handler

        self._peers = Peers()
        super().__init__((own_address(), port), Handler)
        self.address, self.port = str(self.server_address[0]), int(self.server_address[1])
        self.library, self.page = library, page
        self.watches, self.write = Watches(library), write
        self.names, self.keys = Names(self.address, self.port), Keys()
        self.url = f"http://{self.address}:{self.port}/"
        self.tunnel_url = f"http://{COMMON}:{self.port}/"  # at the near end of one
        self.on_page: Callable[[], None] = lambda: None  # a browser has come in
        self._unused_seconds, self._say = unused_seconds, say
        self._uid = os.geteuid()
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._told: set[int | None] = set()
        self._ends = threading.Event()
        self.use()

    @property
    def entrance(self) -> str:
        """A page for a file that only its user can read: it posts a key that is good once."""
        return _ENTRANCE.format(url=self.url, key=html.escape(self.keys.for_file()))

    def use(self) -> None:
        """Somebody uses the page now."""
        self._unused_at = time.monotonic() + self._unused_seconds

    def serve(self) -> None:
        """Take connections; returns at the end."""
        with selectors.DefaultSelector() as waiting:  # one for all: a stranger's connection takes microseconds
            waiting.register(self, selectors.EVENT_READ)
            while not self._ends.is_set() and (left := self._unused_at - time.monotonic()) > 0:
                if waiting.select(left):
                    self._handle_request_noblock()  # type: ignore[attr-defined]  # as `serve_forever`; typeshed lacks it

    def server_close(self) -> None:
        """Take no connections, and look up none."""
        super().server_close()
        self._peers.close()

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._ends.set()
        with socket.socket() as waking:  # the loop sleeps until something connects
            waking.connect(self.server_address)

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
