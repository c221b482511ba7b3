"""A page in the place of ui.perfetto.dev: keeps what is posted to it, by its protocol of PING, PONG and trace."""

from __future__ import annotations

import queue
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

HOST = "ui.perfetto.dev"
_PAGE = b"""<!doctype html><title>stand-in</title><script>
window.addEventListener("message", (event) => {
  if (event.data === "PING") { event.source.postMessage("PONG", event.origin); return; }
  const { buffer, title } = event.data.perfetto;
  fetch("/opened?" + new URLSearchParams({ title, origin: event.origin }), { method: "POST", body: buffer });
});
</script>"""


class Opened(NamedTuple):
    """What a browser handed to the page."""

    trace: bytes
    title: str
    origin: str


class PerfettoPage:
    """Its port, and what arrived."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened: queue.Queue[Opened] = queue.Queue()
        self.referrers: list[str | None] = []


@contextmanager
def perfetto_page(folder: Path) -> Iterator[PerfettoPage]:
    """Serves on loopback, in TLS under a certificate that nobody signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.daemon_threads = True
        page = PerfettoPage(server.server_address[1])
        server.RequestHandlerClass = _handler(page)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, name="perfetto-page", daemon=True)
        thread.start()
        try:
            yield page
        finally:
            server.shutdown()
            thread.join()


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "page.crt", folder / "page.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def _handler(page: PerfettoPage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.referrers.append(self.headers.get("Referer"))
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(_PAGE)))
            self.end_headers()
            self.wfile.write(_PAGE)

        def do_POST(self) -> None:
            asked = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            trace = self.rfile.read(int(self.headers["Content-Length"]))
            page.opened.put(Opened(trace, asked["title"][0], asked["origin"][0]))
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Nothing."""

    return Handler
