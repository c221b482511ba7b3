"""Serves `/metrics`. Everybody who can connect is served, so what goes wrong here is counted, and logged seldom."""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from profd.errors import BadInput
from profd.fairness.rare_line import RareLine
from profd.limits import METRICS_CONNECTIONS_MAX, METRICS_FAULT_CHARACTERS_MAX, METRICS_KEPT_SECONDS
from profd.telemetry.metrics import Metrics

_PAUSE_SECONDS: Final = 0.1
_OPENMETRICS: Final = "application/openmetrics-text"

log = logging.getLogger("profd.telemetry.metrics")


class MetricsServer:
    """Serves from a thread; scrapes are rare and short."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Bind. Raises BadInput naming the address when that fails. Port 0: any free one."""
        try:
            self._server = (_IPv6Server if ":" in host else _Server)(metrics, host, port)
        except OSError as error:
            raise BadInput(
                f"metrics cannot be served on {host}:{port}: {error.strerror}. "
                "Choose another address with --metrics HOST:PORT, or --metrics off."
            ) from error
        self.host, self.port = host, self._server.server_port
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="profd-metrics", daemon=True)

    def open(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop and release the port."""
        self._closing = True
        if self._thread.is_alive():
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
            self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        # serve_forever() would wake up twice a second to see whether it is to stop.
        while not self._closing:
            self._server.handle_request()


class _Faults:
    """Counts what goes wrong, and seldom tells of it."""

    def __init__(self, metrics: Metrics) -> None:
        self._counter = metrics.scrape_faults
        self._line = RareLine(log, "metrics were not served")

    def tell(self, why: str, error: BaseException | None = None) -> None:
        """`error` is told with its traceback."""
        self._counter.inc()
        self._line.tell(error=error, why=why[:METRICS_FAULT_CHARACTERS_MAX])


class _Pages:
    """What there is to serve, in its two forms; kept for METRICS_KEPT_SECONDS, however often it is asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()  # one renders, those who ask meanwhile wait for it
        self._kept: dict[str, tuple[float, bytes]] = {}  # by content type

    def get(self, accept: str) -> tuple[str, bytes]:
        """The content type for this header, and the page."""
        # No more of the header: whoever asks would choose how many forms there are.
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in accept else "")
        with self._lock:
            until, page = self._kept.get(content_type, (0.0, b""))
            if time.monotonic() >= until:
                page = encode(self._registry)
                self._kept[content_type] = time.monotonic() + METRICS_KEPT_SECONDS, page
        return content_type, page


class _Handler(BaseHTTPRequestHandler):
    timeout = 10  # a scraper that stops reading must not hold its thread
    server: _Server

    def do_GET(self) -> None:
        """Everything, whatever the path."""
        content_type, page = self.server.pages.get(self.headers.get("Accept", ""))
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.end_headers()
        self.wfile.write(page)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing of those that were served."""

    def log_error(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        self.server.faults.tell(format % args)


class _Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # with 5 a scrape beside a few others waits for a second SYN

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        self.faults = _Faults(metrics)
        self._connections: dict[socket.socket, None] = {}  # oldest first
        self._lock = threading.Lock()
        self.pages = _Pages(metrics.registry)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Without HTTPServer's getfqdn(), which asks the network for a name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> Any:
        """Without descriptors it would be asked again at once, and again: the connection still waits."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                self.faults.tell(repr(error))
                time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Each has a thread and a descriptor. The connection that waits longest goes: a scrape takes milliseconds."""
        with self._lock:
            self._connections[request] = None
            oldest = next(iter(self._connections)) if len(self._connections) > METRICS_CONNECTIONS_MAX else None
            if oldest is not None:
                del self._connections[oldest]
                oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        if oldest is not None:
            self.faults.tell(f"more than {METRICS_CONNECTIONS_MAX} connections: the oldest was closed")
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """A thread is done with it."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """That of socketserver prints a traceback."""
        error = sys.exception()
        self.faults.tell(repr(error), None if isinstance(error, OSError) else error)


class _IPv6Server(_Server):
    address_family = socket.AF_INET6
