"""One file for one browser: a page on loopback that hands a trace to Perfetto's UI.

Perfetto may fetch from 127.0.0.1:9001 only, a port that belongs to whoever
takes it first. So the page is ours, on any port: it fetches the trace from here
and posts it to the UI's window (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui),
and no other origin may read anything. Nothing leaves this machine: the UI works in the browser.
"""

from __future__ import annotations

import html
import json
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO

from profclient.loopback import own_address

_ENTRANCE = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>profctl open</title>
<meta http-equiv="refresh" content="0; url={url}">
<a href="{url}">The trace</a>
"""

UI = "https://ui.perfetto.dev"
PIECE_BYTES = 512 * 1024
IDLE_SECONDS = 60  # of a connection

_PAGE = """<!doctype html>
<meta charset="utf-8"><title>profctl open</title>
<p id="says">Fetching the trace …</p>
<button id="open" hidden>Open it in Perfetto</button>
<script nonce="{nonce}">
const ui = "{ui}", says = document.getElementById("says"), button = document.getElementById("open");
function show(buffer) {{
  const view = window.open(ui);
  if (!view) {{
    says.textContent = "The browser wants a click.";
    button.hidden = false;
    button.onclick = () => {{ button.hidden = true; show(buffer); }};
    return;
  }}
  says.textContent = "Waiting for Perfetto …";
  const ping = setInterval(() => view.postMessage("PING", ui), 50);
  window.addEventListener("message", (event) => {{
    if (event.origin !== ui || event.source !== view || event.data !== "PONG") return;
    clearInterval(ping);
    view.postMessage({{perfetto: {{buffer, title: {title}, keepApiOpen: false}}}}, ui);
    says.textContent = "Opened in Perfetto. This page can be closed.";
  }});
}}
fetch("trace").then((answer) => {{
  if (!answer.ok) throw new Error("the trace was fetched already: run profctl open again");
  return answer.arrayBuffer();
}}).then(show).catch((error) => {{ says.textContent = String(error); }});
</script>
"""


class OneTrace:
    """Serves one file until it was downloaded once."""

    def __init__(self, file: BinaryIO, size: int, title: str, port: int = 0) -> None:
        """`file` is at its start and `size` bytes long; port 0: any that is free. Raises OSError."""
        self._file = file
        self._size = size
        self._title = title
        self.on_page: Callable[[], None] = lambda: None  # the browser is here
        self._token = secrets.token_urlsafe(24)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._server = ThreadingHTTPServer((own_address(), port), _handler(self))
        self._server.daemon_threads = True
        self.address, self.port = str(self._server.server_address[0]), int(self._server.server_address[1])
        self.url = f"http://{self.address}:{self.port}/{self._token}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="serve-trace", daemon=True)
        self._thread.start()

    @property
    def entrance(self) -> str:
        """A page for a private file: it sends a browser on to the address."""
        return _ENTRANCE.format(url=html.escape(self.url))

    def wait(self) -> None:
        """Wait until the trace was downloaded whole."""
        self._done.wait()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a GET."""
        token, _, name = request.path.removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self._token.encode()) or name not in ("", "trace"):
            request.send_error(HTTPStatus.NOT_FOUND)
        elif name == "":
            self._send_page(request)
        elif not self._lock.acquire(blocking=False):
            request.send_error(HTTPStatus.CONFLICT)
        else:
            try:
                self._send_trace(request)
            finally:
                self._lock.release()

    def _send_page(self, request: BaseHTTPRequestHandler) -> None:
        self.on_page()
        nonce = secrets.token_urlsafe(16)
        page = _PAGE.format(nonce=nonce, ui=UI, title=_script_text(self._title)).encode()
        _head(request, "text/html; charset=utf-8", len(page))
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; connect-src 'self'; frame-ancestors 'none'"
        request.send_header("Content-Security-Policy", policy)
        request.end_headers()
        request.wfile.write(page)

    def _send_trace(self, request: BaseHTTPRequestHandler) -> None:
        if self._done.is_set():
            request.send_error(HTTPStatus.GONE)
            return
        _head(request, "application/octet-stream", self._size)
        request.end_headers()
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            request.wfile.write(piece)
        # A browser that went away meanwhile was an exception: it may come again.
        self._done.set()


def _head(request: BaseHTTPRequestHandler, kind: str, size: int) -> None:
    request.send_response(HTTPStatus.OK)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(size))
    request.send_header("Cache-Control", "no-store")
    request.send_header("X-Content-Type-Options", "nosniff")
    # The address holds the token: Perfetto's server is not to see it.
    request.send_header("Referrer-Policy", "no-referrer")


def _script_text(text: str) -> str:
    """A JavaScript string that cannot end the script it stands in."""
    return json.dumps(text).replace("<", "\\u003c")


def _handler(owner: OneTrace) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

        def do_GET(self) -> None:
            try:
                owner.answer(self)
            except OSError:
                self.close_connection = True  # the browser went away

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Nothing: the address holds the token."""

    return Handler
