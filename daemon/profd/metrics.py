"""What Prometheus sees. Labels are closed sets: never an id or a string of a user, and no pid unasked."""

from __future__ import annotations

import logging
import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from profd import __version__
from profd.capture.model import Loss
from profd.errors import BadInput

# Trigger latency is a poll of up to 5 s; captures are 1 s to 10 min.
_LATENCY_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_DURATION_SECONDS: Final = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200)
# Reasons come from decoders; an unknown one must not become a new time series.
_LOSS_STAGES: Final = frozenset(("target", "streamer", "ingest", "source", "decode", "collate", "store"))
_LOSS_REASONS: Final = frozenset(
    (
        *("bad_flow_time", "bad_id", "bad_time", "dictionary_full", "malformed", "not_an_event", "too_deep"),
        *("too_large", "too_many_tracks", "truncated", "unknown_phase", "unmatched_begin", "unmatched_end"),
        *("unreadable_file", "unreadable_table", "bad_row"),
        *("arena_full", "strings_full", "backed_off", "foreign_thread", "bad_chunk", "unreadable_chunk"),
        *("crc", "header", "version", "foreign", "too_many_threads", "journal_full", "missing"),
        *("inflate", "missing_chunks", "cupti_dropped", "cupti_late", "cupti_bad_time", "file_refused"),
        *("cuda_events_full", "cuda_event_failed"),
    )
)

log = logging.getLogger("profd.metrics")


class Metrics:
    """Counters and histograms of one daemon, in a registry of its own; `observe.py` adds what is read live."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        build = Gauge("profd_build_info", "Version of the daemon; always 1.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.captures = Counter(
            "profd_captures_total", "Targets of captures that have ended, by how.", ["result"], registry=registry
        )
        self.capture_duration = Histogram(
            "profd_capture_duration_seconds",
            "From the request to the terminal state of a target.",
            buckets=_DURATION_SECONDS,
            registry=registry,
        )
        self.trigger_latency = Histogram(
            "profd_trigger_latency_seconds",
            "From the request to the begin of the window.",
            buckets=_LATENCY_SECONDS,
            registry=registry,
        )
        self.ingest_events = Counter(
            "profd_ingest_events_total", "Events stored, by source.", ["source"], registry=registry
        )
        self.events_dropped = Counter(
            "profd_events_dropped_total",
            "Events that existed and are in no trace.",
            ["stage", "reason"],
            registry=registry,
        )
        self.rpc = Counter("profd_rpcs_total", "Calls answered.", ["method", "code"], registry=registry)
        self.refusals = Counter(
            "profd_refusals_total", "Calls beyond a share of their user or the host.", ["kind"], registry=registry
        )

    def count_losses(self, losses: list[Loss]) -> None:
        """Add the losses of one trace; unknown stages and reasons are counted as `other`."""
        for loss in losses:
            stage = loss.stage if loss.stage in _LOSS_STAGES else "other"
            reason = loss.reason if loss.reason in _LOSS_REASONS else "other"
            self.events_dropped.labels(stage, reason).inc(loss.count)


class MetricsServer:
    """Serves `/metrics` from a thread; scrapes are rare and short."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Bind. Raises BadInput naming the address when that fails. Port 0: any free one."""
        family = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(
                host, port, make_wsgi_app(metrics.registry), server_class=family, handler_class=_Quiet
            )
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


class _Quiet(WSGIRequestHandler):
    timeout = 10  # a scraper that stops reading must not hold its thread

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        log.debug(format, *args)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        # Without HTTPServer's getfqdn(), which asks the network for a name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _IPv6Server(_Server):
    address_family = socket.AF_INET6
