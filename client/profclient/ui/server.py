"""Takes connections on loopback: those of the server's own user, and nobody else's."""

from __future__ import annotations

import html
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Final, cast

from profclient.loopback import COMMON, own_address
from profclient.ui.asking import Library
from profclient.ui.gate import Keys
from profclient.ui.listener import PageListener
from profclient.ui.now import Watches
from profclient.ui.peers import Peers
from profclient.ui.perfetto import PerfettoServer, installed

UNUSED_SECONDS: Final = 8 * 3600.0
_ENTRANCE: Final = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>profctl ui</title>
<form method="post" action="{url}enter">
<input type="hidden" name="key" value="{key}">
<button>Open the page of profctl ui</button>
</form>
<script>document.forms[0].submit();</script>
"""


class PageServer(PageListener):
    """Serves until `stop`, or until nobody has used it for so long; Perfetto, too, at a port of its own."""

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

        peers = Peers()
        super().__init__(own_address(), port, Handler, peers, say)
        files = installed()
        self.perfetto = None if files is None else PerfettoServer(self.address, self.port, files, peers, say)
        self.library, self.page = library, page
        self.watches, self.write = Watches(library), write
        self.keys = Keys()
        self.url = f"http://{self.address}:{self.port}/"
        self.tunnel_url = f"http://{COMMON}:{self.port}/"  # at the near end of one
        self.on_page: Callable[[], None] = lambda: None  # a browser has come in
        self._unused_seconds = unused_seconds
        self._ends = threading.Event()
        self.use()

    @property
    def ports(self) -> list[int]:
        """The ports that a tunnel has to lead to."""
        return [self.port] if self.perfetto is None else [self.port, self.perfetto.port]

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
            if self.perfetto is not None:
                waiting.register(self.perfetto, selectors.EVENT_READ)
            while not self._ends.is_set() and (left := self._unused_at - time.monotonic()) > 0:
                for key, _ in waiting.select(left):
                    cast("PageListener", key.fileobj).take()

    def server_close(self) -> None:
        """Take no connections, and look up none."""
        super().server_close()
        if self.perfetto is not None:
            self.perfetto.server_close()
        self._peers.close()

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._ends.set()
        with socket.socket() as waking:  # the loop sleeps until something connects
            waking.connect(self.server_address)
