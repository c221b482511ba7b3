"""The page Now in a real Chromium: captures are begun and ended there, and others see nothing of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from profproto.v1 import query_pb2 as pb
from profproto.v1 import query_pb2_grpc

from tests.integration.ui.conftest import PROFCTL, cells, saved
from tests.support.chromium import new_tab
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.people import being
from tests.support.python_jobs import SAMPLED, SPIN, needs_ptrace, running
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ui-now"), needs_ptrace]

OTHER = 65533
SEEN = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


HAS_FOCUS = "(one) => one === document.activeElement"
BEHIND = """(one) => Boolean(document.querySelector(".now").compareDocumentPosition(one)
  & Node.DOCUMENT_POSITION_FOLLOWING)"""


@dataclass
class Now:
    """The tab, a job that can be recorded, and what the page complained of."""

    tab: Any
    url: str
    daemon: RunningDaemon
    job: subprocess.Popen[bytes]
    complaints: list[str]

    def captures(self) -> list[dict[str, Any]]:
        """As `profctl` lists them."""
        words = [*PROFCTL, "captures", "--json"]
        done = subprocess.run(words, env=self.daemon.environ, capture_output=True, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def now(browser: Any) -> Iterator[Now]:
    with running_daemon(user=os.geteuid() != 0) as daemon, running(SPIN) as job:
        server = subprocess.Popen(
            [*PROFCTL, "ui", "--write", "--no-browser", "now"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=daemon.environ,
            text=True,
        )
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            tab = new_tab(browser, viewport={"width": 1280, "height": 1000})
            complaints: list[str] = []
            tab.on("console", lambda said: said.type == "error" and complaints.append(said.text))
            tab.on("pageerror", lambda error: complaints.append(str(error)))
            tab.goto(address)
            tab.wait_for_url("**/#/now")
            yield Now(tab, address.partition("#")[0], daemon, job, complaints)
        finally:
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=PATIENCE_SECONDS)
            assert "Traceback" not in said, said


def test_a_capture_begun_here_passes_and_its_trace_opens(now: Now, tmp_path: Path) -> None:
    tab = now.tab
    tab.get_by_role("checkbox", name=f"Record {now.job.pid}", exact=True).check()
    tab.get_by_role("spinbutton", name="Length of the window").fill("1.5")
    estimate = tab.get_by_role("region", name="Estimate")
    start = estimate.get_by_role("button", name="Start", exact=True)
    start.wait_for()
    assert f"pid {now.job.pid}" in estimate.inner_text()
    assert "pyspy" in estimate.inner_text()
    assert now.captures() == []
    # Another window has another cost: what was shown is no longer what would be begun.
    tab.get_by_role("spinbutton", name="Length of the window").fill("1")
    start.wait_for(state="detached")
    start.click()

    form = tab.get_by_role("form", name="Start a capture")
    begun = form.get_by_role("link").get_attribute("href")
    assert form.get_by_role("status").last.inner_text().endswith(" has begun.")
    ended = tab.get_by_role("region", name="Ended last")
    link = ended.get_by_role("link", name="Trace ")
    link.wait_for()
    (capture,) = now.captures()
    (target,) = capture["targets"]
    assert (capture["state"], target["pid"]) == ("stored", now.job.pid)
    assert begun == f"#/capture/{capture['capture']}"
    assert all(phase["name"] in ended.inner_text() for phase in target["waterfall"])
    assert tab.get_by_role("region", name="Recording").inner_text().endswith("Nothing is recorded.")
    name, picture = saved(now, ended, ("back", "text", "operator"), tmp_path)
    assert name == f"profd-waterfalls-{capture['capture']}.png"
    assert min(picture["pixels"]) > 20
    link.click()
    tab.wait_for_url(f"**/#/trace/{target['trace']}")
    tab.get_by_role("heading", name="Answer").wait_for()
    assert now.complaints == []
    tab.goto(f"{now.url}#/now")


def test_attached_processes_stand_above_others(now: Now) -> None:
    rows = now.tab.locator(".now tbody tr")
    with running(f"import profclient\nprofclient.attach()\n{SPIN}", env=now.daemon.environ) as attached:
        box = now.tab.get_by_role("checkbox", name=f"Record {attached.pid}", exact=True)
        rows.filter(has=box).filter(has_text="sdk").wait_for()
        pids = [int(row.get_by_role("checkbox").get_attribute("value")) for row in rows.all()]
    assert pids.index(attached.pid) < pids.index(now.job.pid)
    assert attached.pid > now.job.pid  # the order of pids, which holds among those of a kind


def test_a_capture_is_begun_and_stopped_by_keys(now: Now) -> None:
    """The form is behind the processes, and the focus is never lost with a button that goes away."""
    tab = now.tab
    tab.get_by_role("checkbox", name=f"Record {now.job.pid}", exact=True).focus()
    tab.keyboard.press("Space")
    amount = tab.get_by_role("spinbutton", name="Length of the window")
    assert amount.evaluate(BEHIND), "who has chosen goes on, and not back"
    amount.focus()
    tab.keyboard.press("ControlOrMeta+a")
    tab.keyboard.type("600")
    start = tab.get_by_role("button", name="Start", exact=True)
    start.wait_for()
    for _ in range(5):  # the unit, what else is recorded, and then the button
        tab.keyboard.press("Tab")
    assert start.evaluate(HAS_FOCUS)
    tab.keyboard.press("Enter")
    assert tab.get_by_role("region", name="Estimate").evaluate(HAS_FOCUS)
    recording = tab.get_by_role("region", name="Recording")
    recording.get_by_text("of 600", exact=False).wait_for()
    recording.get_by_text("window", exact=False).first.wait_for()
    assert "so far" in recording.inner_text()
    first = recording.locator(".grows").inner_text()
    tab.wait_for_function("(before) => document.querySelector('.grows')?.textContent !== before", arg=first)
    # AND meanwhile another user is told nothing
    if os.geteuid() == 0:
        assert told_to(now.daemon, OTHER)["captures"] == []
        assert now.job.pid not in [row["pid"] for row in told_to(now.daemon, OTHER)["processes"]]
        assert told_to(now.daemon, None)["captures"][0]["targets"][0]["pid"] == now.job.pid
    tab.get_by_role("button", name="Stop").press("Enter")
    recording.get_by_text("Nothing is recorded.").wait_for(timeout=1000 * PATIENCE_SECONDS)
    assert tab.evaluate("() => document.activeElement.closest('main') !== null")
    assert now.captures()[0]["state"] in ("stored", "partial")
    assert now.complaints == []


def test_nothing_is_heard_while_it_is_not_seen(now: Now) -> None:
    tab = now.tab
    tab.get_by_role("checkbox", name=f"Record {now.job.pid}", exact=True).wait_for()
    with running(SPIN) as other:
        row = tab.get_by_role("checkbox", name=f"Record {other.pid}", exact=True)
        row.wait_for()
        tab.evaluate(SEEN, True)
    with running(SPIN) as later:
        words = [*PROFCTL, "start", "--pid", str(later.pid), "--duration", SAMPLED, "--json"]
        subprocess.run(words, env=now.daemon.environ, capture_output=True, check=True)
        assert row.is_visible()
        with tab.expect_request("**/api/watch"):
            tab.evaluate(SEEN, False)
        tab.get_by_role("checkbox", name=f"Record {later.pid}", exact=True).wait_for()
        assert not row.is_visible()
    assert now.complaints == []


def test_captures_are_those_of_the_command_and_one_says_how_it_went(now: Now) -> None:
    tab = now.tab
    told = now.captures()
    tab.goto(f"{now.url}#/captures")
    tab.get_by_role("table", name="Captures").wait_for()
    rows = cells(tab, "Captures")
    assert [row[0] for row in rows] == [one["capture"] for one in told]
    assert [row[3] for row in rows] == [one["state"] for one in told]
    assert [row[6] for row in rows] == [one["targets"][0]["trace"] for one in told]
    first = told[-1]
    tab.get_by_role("link", name=first["capture"]).click()
    went = tab.get_by_role("region", name="How it went")
    went.get_by_role("link", name=f"Trace {first['targets'][0]['trace']}").wait_for()
    assert all(phase["name"] in went.inner_text() for phase in first["targets"][0]["waterfall"])
    tab.goto(f"{now.url}#/capture/c00")
    tab.get_by_text("Nothing of that is kept here").wait_for()
    tab.get_by_text("No trace of the capture c00 is yours to read").wait_for()
    assert now.complaints == []
    tab.goto(f"{now.url}#/now")
    tab.get_by_role("checkbox", name=f"Record {now.job.pid}", exact=True).wait_for()


def test_a_daemon_that_went_away_is_said_and_found_again(now: Now) -> None:
    """Its words stand in the page, with a button that tries again."""
    tab = now.tab
    tab.route(
        "**/api/watch", lambda route: route.fulfill(status=502, json={"error": "profd went away", "kind": "gone"})
    )
    tab.evaluate(SEEN, True)
    tab.evaluate(SEEN, False)
    alert = tab.get_by_role("alert")
    alert.wait_for()
    assert "profd went away" in alert.inner_text()
    tab.unroute("**/api/watch")
    alert.get_by_role("button", name="Try again").click()
    alert.wait_for(state="detached")
    assert tab.get_by_role("checkbox", name=f"Record {now.job.pid}", exact=True).is_visible()
    now.complaints.clear()  # of the refused watch


def told_to(daemon: RunningDaemon, uid: int | None) -> Any:
    """The first line of `watch_host` for this user."""
    with being(uid):
        metadata = daemon.metadata()
    with grpc.insecure_channel(f"unix:{daemon.socket}", options=[("grpc.default_authority", "localhost")]) as channel:
        stub = query_pb2_grpc.QueryServiceStub(channel)
        call = stub.Query(pb.QueryRequest(name="watch_host", scope=pb.Scope(host=True)), metadata=metadata)
        text = b""
        for part in call:
            text += part.data
            if text.endswith(b"\n"):
                break
        call.cancel()
    return json.loads(text)
