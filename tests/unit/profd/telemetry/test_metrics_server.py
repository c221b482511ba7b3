"""Whatever connects to the metrics: scrapes are served, and the log stays JSON and short."""

from __future__ import annotations

import io
import json
import logging
import os
import resource
import socket
import struct
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest
from profd.limits import METRICS_CONNECTIONS_MAX, METRICS_KEPT_SECONDS
from profd.telemetry import metrics_server
from profd.telemetry.logs import JsonFormatter
from profd.telemetry.metrics import Metrics
from profd.telemetry.metrics_server import MetricsServer
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tests.support.waiting import PATIENCE_SECONDS, until


class Served:
    """A server whose log is a daemon's."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.log = io.StringIO()
        self.server = MetricsServer(self.metrics, "127.0.0.1", 0)

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    @property
    def faults(self) -> float:
        return self.metrics.registry.get_sample_value("profd_scrape_faults_total") or 0.0

    def connect(self) -> socket.socket:
        return socket.create_connection((self.server.host, self.server.port), PATIENCE_SECONDS)

    def scrape(self, **headers: str) -> bytes:
        url = f"http://{self.server.host}:{self.server.port}/metrics"
        asked = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            said: bytes = answer.read()
            return said


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.05)
    found = Served()
    handler = logging.StreamHandler(found.log)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("profd.telemetry.metrics")
    logger.addHandler(handler)
    found.server.open()
    yield found
    found.server.close()
    logger.removeHandler(handler)


def stalls(served: Served) -> socket.socket:
    """Connects and says nothing."""
    return served.connect()


def stops_in_the_middle(served: Served) -> socket.socket:
    connection = served.connect()
    connection.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
    return connection


def makes_no_sense(served: Served) -> socket.socket:
    connection = served.connect()
    connection.sendall(b"\x1b[31m\xff" * 1000 + b"\r\n\r\n")
    return connection


def resets(served: Served) -> socket.socket:
    connection = served.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.sendall(b"GET /metrics HTTP/1.0\r\n")
    connection.close()
    return connection


@pytest.mark.parametrize("goes_wrong", [stalls, stops_in_the_middle, makes_no_sense, resets])
def test_many_that_go_wrong_are_one_line_and_counted(
    served: Served, goes_wrong: Callable[[Served], socket.socket], capfd: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as connections:
        for _ in range(8):
            connections.enter_context(goes_wrong(served))
        until(lambda: served.faults == 8, "all are counted")
        assert b"profd_scrape_faults_total 8.0" in served.scrape()
    [line] = served.lines
    assert (line["level"], line["message"]) == ("warning", "metrics were not served")
    assert capfd.readouterr().err == ""


def test_a_page_is_rendered_once_a_second_however_often_and_in_whatever_form_it_is_asked_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Collector):
        collected = 0

        def collect(self) -> Iterable[Metric]:
            self.collected += 1
            return ()

    counting = Counting()
    served.metrics.registry.register(counting)
    before = counting.collected
    now = [time.monotonic()]
    monkeypatch.setattr(metrics_server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for number in range(10):
        assert b"profd_build_info" in served.scrape()
        form = f"application/openmetrics-text; version=1.0.{number}"
        assert served.scrape(Accept=form).endswith(b"# EOF\n")
    assert counting.collected == before + 2
    now[0] += METRICS_KEPT_SECONDS
    served.scrape()
    assert counting.collected == before + 3


class Broken(Collector):
    """A fault of ours; what is asked for when it is registered works."""

    def __init__(self) -> None:
        self.breaks = False

    def collect(self) -> Iterable[Metric]:
        if self.breaks:
            raise RuntimeError("a fault of profd")
        return ()


def test_a_fault_of_ours_is_told_with_its_traceback_in_the_same_line(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = Broken()
    served.metrics.registry.register(broken)
    broken.breaks = True
    with pytest.raises(OSError):  # noqa: PT011 - closed without an answer, in the client's words
        served.scrape()
    until(lambda: bool(served.lines), "it is told")
    [line] = served.lines
    assert "a fault of profd" in str(line["why"])
    assert "Traceback" in str(line["exception"])
    assert capfd.readouterr().err == ""


def test_a_daemon_without_descriptors_serves_again_when_it_has_some(served: Served) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as ending:
        waiting = ending.enter_context(socket.socket())
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        ending.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with suppress(OSError):
            while True:
                ending.callback(os.close, os.dup(waiting.fileno()))
        waiting.connect((served.server.host, served.server.port))
        until(lambda: served.faults >= 1, "it is counted")
    assert b"profd_build_info" in served.scrape()
    assert "Too many open files" in str(served.lines[0]["why"])


def test_who_holds_connections_open_keeps_nobody_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", PATIENCE_SECONDS)
    with ExitStack() as connections:
        idle = [connections.enter_context(served.connect()) for _ in range(3 * METRICS_CONNECTIONS_MAX)]
        assert b"profd_build_info" in served.scrape()
        assert len(served.server._server._connections) <= METRICS_CONNECTIONS_MAX
        idle[0].settimeout(PATIENCE_SECONDS)
        assert idle[0].recv(1) == b""
