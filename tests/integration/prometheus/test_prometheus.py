"""`deploy/prometheus`: promtool accepts it, and a real Prometheus that scrapes a real daemon has data for all of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.sources.pyspy import tool
from profproto.v1 import trace_pb2
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.support.attached import WAIT_SECONDS, Captures, attached
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.prometheus import DASHBOARD, DEPLOYED, RULES, Prometheus, needs_prometheus, prometheus
from tests.support.python_jobs import SPIN, needs_ptrace
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, needs_prometheus]

TESTS = Path(__file__).with_name("rules.test.yml")
STEPS = """
import mmap, os, sys, threading, time
import profclient
profclient.attach()
i = 0
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
print("ready", flush=True)
while True:
    i += 1
    profclient.step()
    with profclient.record_function("work"):
        time.sleep(0.002)
    shared[:8] = i.to_bytes(8, "little")
"""
# Only of hosts with a driver.
GPUS = re.compile(r"profd_gpu_(?!lease)")


def rules() -> str:
    return RULES.read_text()


def expressions() -> list[str]:
    """Of the dashboard, as Grafana sends them for all hosts."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [text.replace("$__rate_interval", "1h").replace("$instance", ".*") for text in found]


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", str(DEPLOYED / "prometheus.yml")),
        ("check", "rules", str(RULES)),
        ("test", "rules", str(TESTS)),
    ],
)
def test_promtool_has_nothing_to_say(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    alerts = set(re.findall(r"alert: (\w+)", rules()))
    cases = re.findall(r"alertname: (\w+)\n +exp_alerts:( \[\])?", TESTS.read_text())
    assert {name for name, none in cases if not none} == alerts
    assert {name for name, none in cases if none} == alerts


def test_operations_say_what_to_do_for_every_alert() -> None:
    page = (DEPLOYED.parents[1] / "docs" / "operations.md").read_text()
    assert set(re.findall(r"alert: (\w+)", rules())) == set(re.findall(r"^\| `(Profd\w+)` \|", page, re.MULTILINE))


def test_a_tool_that_finds_what_is_wrong(tmp_path: Path) -> None:
    """promtool fails where an alert does not fire: what passes above means something."""
    wrong = TESTS.read_text().replace("h:9477 has 70B free", "h:9477 has 71B free")
    assert wrong != TESTS.read_text()
    (tmp_path / "wrong.yml").write_text(wrong.replace("../../../deploy/prometheus", str(DEPLOYED)))
    words = ["promtool", "test", "rules", str(tmp_path / "wrong.yml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "has 71B free" in done.stdout + done.stderr


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningDaemon, Prometheus]]:
    with running_daemon("--metrics", "127.0.0.1:0") as daemon:
        until(lambda: '"metrics"' in daemon.log, "it says where its metrics are")
        port = re.findall(r'"metrics": "127.0.0.1:(\d+)"', daemon.log)[0]
        with prometheus(tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{port}") as server:
            until(lambda: server.query("up == 1"), "it is scraped")
            yield daemon, server


@needs_ptrace
@pytest.mark.skipif(tool.find() is None, reason="py-spy is not installed")
def test_every_expression_has_data_once_captures_ran(scraped: tuple[RunningDaemon, Prometheus], tmp_path: Path) -> None:
    daemon, server = scraped
    everything_happens(daemon, tmp_path)
    # A series that begins has a rate when it has grown since it was first seen.
    until(
        lambda: server.query(
            'profd_sampler_wait_seconds_count > 0 and on () profd_captures_total{result="stored"} > 1'
        ),
        "it is seen",
    )
    everything_happens(daemon, tmp_path)
    asked = [text for text in expressions() if not GPUS.search(text)]
    assert len(asked) > 30
    for text in asked:
        until(lambda text=text: server.numbers(text), text)


def everything_happens(daemon: RunningDaemon, folder: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, folder, STEPS) as job:
        for _ in range(2):
            job.counts_on()
            captures.record(job.pid)
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE, text=True) as spinning:
        try:
            assert spinning.stdout is not None
            spinning.stdout.readline()
            captures.record(spinning.pid, source="pyspy")
            captures.record(spinning.pid, source="kineto")  # which it has not
        finally:
            spinning.kill()
    stub = daemon.stub(TraceServiceStub)
    [trace, *_] = stub.ListTraces(trace_pb2.ListTracesRequest(), metadata=daemon.metadata()).traces
    stub.KeyAverages(trace_pb2.KeyAveragesRequest(id=trace.id), metadata=daemon.metadata(), timeout=WAIT_SECONDS)


def test_expressions_for_gpus_are_understood(scraped: tuple[RunningDaemon, Prometheus]) -> None:
    _, server = scraped
    asked = [text for text in expressions() if GPUS.search(text)]
    assert asked
    for text in asked:
        server.query(text)


def test_every_rule_is_evaluated_and_none_fires(scraped: tuple[RunningDaemon, Prometheus]) -> None:
    _, server = scraped

    def found() -> list[dict[str, Any]]:
        return [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]

    until(lambda: all(rule["health"] != "unknown" for rule in found()), "all were evaluated")
    assert {rule["name"]: rule["lastError"] for rule in found() if rule["health"] != "ok"} == {}
    assert len(found()) == len(re.findall(r"- (?:alert|record): ", rules()))
    assert [rule["name"] for rule in found() if rule.get("state") == "firing"] == []


def test_names_in_rules_and_dashboard_are_documented() -> None:
    page = (DEPLOYED.parents[1] / "docs" / "configuration.md").read_text()
    used = set(re.findall(r"(?<!:)\bprofd_[a-z_0-9]+", "\n".join([*expressions(), rules()])))
    bare = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used if not GPUS.match(name)}
    assert {name for name in bare if not re.search(rf"`{name}[`{{]", page)} == set()
