"""A real Prometheus, as `deploy/prometheus` sets it up, that scrapes a daemon of a test.

with prometheus(folder, f"127.0.0.1:{port}") as server:
    server.query("profd_enabled")       # [{"metric": {...}, "value": [...]}, ...]
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.waiting import until

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "prometheus"
RULES = DEPLOYED / "profd.rules.yml"
DASHBOARD = DEPLOYED / "dashboard.json"

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="no prometheus and promtool here (apt-get install prometheus)",
)


@dataclass(frozen=True)
class Prometheus:
    """One that runs."""

    address: str

    def ask(self, path: str, **query: str) -> Any:
        """`data` of an answer of its API; AssertionError with its words where it refuses."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now."""
        series: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return series

    def numbers(self, expression: str) -> list[float]:
        """Its values now, without those that are none."""
        values = [float(series["value"][1]) for series in self.query(expression)]
        return [value for value in values if not math.isnan(value)]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """It scrapes every second what it would every fifteen; ended with the block."""
    text = (DEPLOYED / "prometheus.yml").read_text()
    assert "127.0.0.1:9477" in text
    assert text.count(": 15s") == 2
    (folder / "prometheus.yml").write_text(text.replace("127.0.0.1:9477", target).replace(": 15s", ": 1s"))
    shutil.copy(RULES, folder)
    server = Prometheus(f"127.0.0.1:{free_port()}")
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [
        f"--web.listen-address={server.address}",
        "--web.console.libraries=/tmp",
        "--web.console.templates=/tmp",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(lambda: process.poll() is not None or server.is_ready(), "Prometheus is ready")
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            yield server
        finally:
            process.terminate()
            process.wait(60)
