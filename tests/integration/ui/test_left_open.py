"""The page Now, left open while captures come and go: what it holds does not grow with them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.integration.ui.conftest import PROFCTL
from tests.integration.ui.test_now_page import Now, now
from tests.support.long import long
from tests.support.python_jobs import needs_ptrace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ui-now"), needs_ptrace]
__all__ = ["now"]  # a fixture

WARM_UP, CAPTURES = 30, 60
A_DAY = 2000  # captures
BYTES_A_DAY = 10 << 20


def held(tab: Any) -> dict[str, int]:
    """Bytes of the script's heap, elements, and listeners, without what is garbage."""
    session = tab.context.new_cdp_session(tab)
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    counters = session.send("Memory.getDOMCounters")
    found = {"bytes": session.send("Runtime.getHeapUsage")["usedSize"], **counters}
    session.detach()
    return {name: int(count) for name, count in found.items()}


@long
def test_it_holds_no_more_after_many_captures(now: Now) -> None:
    words = [
        *PROFCTL,
        "start",
        "--pid",
        str(now.job.pid),
        "--source",
        "pyspy",
        "--duration",
        "100ms",
        "--detach",
        "--json",
    ]

    def record(count: int) -> dict[str, int]:
        for _ in range(count):
            begun = subprocess.run(words, env=now.daemon.environ, capture_output=True, text=True, check=True)
            capture = json.loads(begun.stdout)["capture"]
            subprocess.run([*PROFCTL, "wait", capture], env=now.daemon.environ, capture_output=True, check=False)
        now.tab.get_by_text(now.captures()[0]["capture"]).first.wait_for()  # it has heard of the last one
        return held(now.tab)

    before = record(WARM_UP)
    after = record(CAPTURES)
    print(f"held after {WARM_UP} captures {before}, after {CAPTURES} more {after}")
    assert after["bytes"] - before["bytes"] <= BYTES_A_DAY * CAPTURES / A_DAY
    assert after["nodes"] <= before["nodes"] * 1.1
    assert after["jsEventListeners"] <= before["jsEventListeners"] * 1.1
    assert now.complaints == []
