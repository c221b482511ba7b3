"""Perfetto inside the page: its real UI, in a real Chromium, has the events that were stored, and asks nobody else."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from profclient.cli.commands.open import open_trace
from profclient.errors import UsageError
from profclient.offline import OfflineTraces
from profclient.ui import handed
from profclient.ui import server as server_module
from profclient.ui.asking import Library
from profclient.ui.perfetto import INSTALL, installed
from profclient.ui.server import PageServer

from tests.integration.ui.conftest import SLOW, STEPS, training
from tests.integration.ui.test_server import OTHER, Got, request, serving
from tests.support.chromium import new_tab
from tests.support.perfetto import Perfetto, needs_perfetto
from tests.support.simulated_job import Plan, files
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, needs_perfetto]
START = 1_700_000_000_000_000_000
STEP_NS = 1_010_000
STEP_SQL = "SELECT count(*) FROM events WHERE start_ns + duration_ns > {0} AND start_ns < {1}"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def trace(store: Path) -> str:
    file = store.parent / "train.json"
    file.write_text(json.dumps({"traceEvents": training(300)}))
    return str(OfflineTraces(store).import_file(file)["id"])


@pytest.fixture
def server(store: Path) -> Iterator[PageServer]:
    with serving(library=Library(store)) as one:
        yield one


def opened(browser: Any, server: PageServer, page: str) -> Any:
    """A tab of a browser that knows nothing yet, at this page."""
    tab = new_tab(browser, viewport={"width": 1280, "height": 900})
    server.page = page
    tab.goto(f"{server.url}#key={server.keys.for_terminal()}")
    tab.wait_for_selector("h1")
    return tab


def said(tab: Any) -> str:
    """What the page says of Perfetto, in the end."""
    tab.wait_for_selector(".perfetto:not([aria-busy])", state="attached")
    return str(tab.get_by_role("status").inner_text())


def count(store: Path, trace: str, sql: str) -> int:
    return int(OfflineTraces(store).ask("sql", trace, sql=sql).value()["rows"][0][0])


FOCUSED = "() => document.activeElement.tagName"


def test_perfetto_is_reached_and_left_by_keys(browser: Any, server: PageServer, trace: str) -> None:
    """By Tab, through all of its controls and out at the end of the page; by F6 from anywhere in it, and into it."""
    tab = opened(browser, server, f"/perfetto/{trace}")
    said(tab)
    frame, perfetto = tab.frames[1:]
    perfetto.locator("button").first.wait_for()
    tab.get_by_role("link", name="All traces").focus()
    tab.keyboard.press("Tab")
    assert tab.evaluate(FOCUSED) == "IFRAME"
    assert frame.evaluate(FOCUSED) == "IFRAME"
    assert perfetto.evaluate(FOCUSED) != "BODY"
    for _ in range(200):
        tab.keyboard.press("Tab")
        if tab.evaluate(FOCUSED) != "IFRAME":
            break
    else:
        pytest.fail("Tab does not leave Perfetto")
    for place in ("button", "input", ""):
        tab.keyboard.press("F6")
        perfetto.wait_for_function("() => document.hasFocus()")
        if place:
            perfetto.locator(place).first.focus()
        tab.keyboard.press("F6")
        tab.wait_for_function("() => document.activeElement.role === 'status'")
    assert "F6 leads into Perfetto, and back." in said(tab)
    assert [one.get_attribute("title") for one in (tab.locator("iframe"), frame.locator("iframe"))] == [
        "Perfetto (F6 leads back)",
        "Timeline of Perfetto",
    ]


def test_a_window_of_the_timeline_opens_in_perfetto(browser: Any, server: PageServer, store: Path, trace: str) -> None:
    tab = opened(browser, server, f"/trace/{trace}")
    line = tab.get_by_role("application", name="Timeline")
    line.focus()
    for key in "wwd":
        tab.keyboard.press(key)
    tab.get_by_role("button", name="Open in Perfetto").click()
    low, high = (int(part.partition("=")[2]) for part in tab.url.partition("?")[2].split("&"))
    perfetto = Perfetto(tab)
    assert said(tab).startswith(
        f"Perfetto has the whole trace: {count(store, trace, 'SELECT count(*) FROM events')} events."
    )
    assert perfetto.seen() == (START + low, high - low)
    ours = OfflineTraces(store).ask("sql", trace, sql="SELECT name, count(*) FROM events GROUP BY 1 ORDER BY 1")
    theirs = perfetto.rows("SELECT name, count(*) AS n FROM slice GROUP BY 1 ORDER BY 1")
    assert theirs == [[name, str(number)] for name, number in ours.value()["rows"]]


def test_a_part_is_all_that_perfetto_is_given(browser: Any, server: PageServer, trace: str) -> None:
    tab = opened(browser, server, f"/perfetto/{trace}?step=7..8&cut=1")
    names = [row[0] for row in Perfetto(tab).rows("SELECT name FROM slice WHERE name GLOB 'ProfilerStep*' ORDER BY ts")]
    assert names == ["ProfilerStep#7", "ProfilerStep#8"]
    assert said(tab).startswith("Perfetto has steps 7 to 8, of a trace of")


def test_what_perfetto_does_not_hold_is_cut_to_the_window(
    browser: Any, server: PageServer, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed, "WHOLE_EVENTS_MAX", 10)
    tab = opened(browser, server, f"/perfetto/{trace}?from={3 * STEP_NS}&to={4 * STEP_NS - 10_000}")
    rows = Perfetto(tab).rows("SELECT name FROM slice WHERE name GLOB 'ProfilerStep*'")
    assert rows == [["ProfilerStep#3"]]
    text = said(tab)
    assert text.startswith("Perfetto has the window alone: 1.00 ms of the trace, from 3.03 ms on.")
    assert "10 are the most" in text
    monkeypatch.setattr(handed, "BYTES_MAX", 100)
    tab.reload()
    assert "choose a narrower window" in tab.get_by_role("alert").inner_text()
    assert len(tab.frames) == 1  # nothing is left of it


def test_perfetto_asks_nobody_else_and_never_sees_the_key(browser: Any, server: PageServer, trace: str) -> None:
    tab = opened(browser, server, f"/trace/{trace}")
    asked: list[Any] = []
    ended: list[tuple[str, str]] = []
    answered: list[str] = []
    tab.context.on("request", lambda one: asked.append(one))
    tab.context.on("requestfailed", lambda one: ended.append((one.url, one.failure)))
    tab.context.on("response", lambda one: answered.append(one.url))
    tab.evaluate("(hash) => { location.hash = hash; }", f"#/perfetto/{trace}")
    perfetto = Perfetto(tab)
    assert server.perfetto is not None
    origin = f"http://{server.address}:{server.perfetto.port}"
    ours = (f"{server.url}", f"{origin}/")
    assert {url for url in answered if not url.startswith((*ours, "blob:", "data:"))} == set()
    assert {failure for url, failure in ended if not url.startswith(ours)} <= {"csp"}
    for one in asked:
        if not one.url.startswith(server.url):
            assert server.keys.session not in json.dumps([one.url, one.all_headers(), one.post_data])
            assert not one.all_headers().get("referer")
    frame = perfetto.frame
    assert frame.evaluate("document.referrer + location.search") == ""
    assert frame.evaluate("Object.keys(sessionStorage)") == []
    assert server.keys.session not in frame.evaluate("JSON.stringify({ ...localStorage }) + location")
    assert frame.evaluate("(() => { try { return top.sessionStorage; } catch (error) { return error.name; } })()") == (
        "SecurityError"
    )
    assert frame.evaluate("fetch('/api/host', { method: 'POST' }).then((one) => one.status)") == 501
    other = f"{server.url}static/app.js"
    assert frame.evaluate("(url) => fetch(url, { mode: 'no-cors' }).catch((error) => error.name)", other) == "TypeError"
    [middle] = [one for one in tab.frames if one.url == f"{origin}/"]
    assert middle.evaluate("caches.keys()") == []  # no trace stays in the browser
    assert middle.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0


EVIL = """<!doctype html><title>evil</title><script>
window.heard = [];
addEventListener("message", ({ data }) => heard.push(data));
const target = new URLSearchParams(location.search).get("target");
const frame = document.createElement("iframe");
frame.onload = () => { window.framed = true; };
frame.src = target;
document.documentElement.append(frame);
function tell(view) {
  for (const data of ["PING", { buffer: new ArrayBuffer(9), title: "x" }]) view.postMessage(data, "*");
}
</script><button onclick="window.view = window.open(target)">open</button>"""


@contextmanager
def evil() -> Iterator[str]:
    """A page of somebody else, at the same address as everybody's."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(EVIL.encode())

        def log_message(self, *words: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{other.server_address[1]}/"
        other.shutdown()
        thread.join()


@pytest.mark.parametrize("path", ["", "perfetto.html"])
def test_a_page_of_another_origin_cannot_frame_it_or_talk_to_it(browser: Any, server: PageServer, path: str) -> None:
    assert server.perfetto is not None
    target = f"http://{server.address}:{server.perfetto.port}/{path}"
    with evil() as url:
        tab = new_tab(browser)
        tab.goto(f"{url}?{urllib.parse.urlencode({'target': target})}")
        tab.wait_for_function("window.framed")
        assert [frame.url for frame in tab.frames[1:]] == ["chrome-error://chromewebdata/"]
        tab.evaluate("tell(frame.contentWindow)")
        with tab.context.expect_page() as popup:
            tab.get_by_role("button").click()
        popup.value.wait_for_load_state()
        assert "a part of the page of profctl ui" in popup.value.content()
        assert popup.value.evaluate("window.opener") is None
        tab.evaluate("tell(view)")
        tab.wait_for_timeout(0)
        assert tab.evaluate("heard") == []


CONNECTS = """
import encodings.idna, os, socket, sys  # what is imported later others may not be able to read
uid, address, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
with socket.create_connection((address, port)) as connection:
    try:
        connection.sendall(f"GET / HTTP/1.1\\r\\nHost: {address}:{port}\\r\\n\\r\\n".encode())
        print(connection.recv(1000))
    except ConnectionError:
        print(b"")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")
def test_another_user_gets_not_a_byte_of_it(server: PageServer) -> None:
    assert server.perfetto is not None
    words = [sys.executable, "-c", CONNECTS, str(OTHER), server.address, str(server.perfetto.port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    assert done.stdout == "b''\n"
    assert perfetto_request(server, "/").status == 200


def perfetto_request(server: PageServer, path: str, **headers: str) -> Got:
    """As a frame asks."""
    assert server.perfetto is not None
    host = f"{server.address}:{server.perfetto.port}"
    given = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    with closing(http.client.HTTPConnection(server.address, server.perfetto.port, timeout=PATIENCE_SECONDS)) as asking:
        asking.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            asking.putheader(name, str(value))
        asking.endheaders()
        return Got(asking.getresponse())


def test_the_port_of_perfetto_answers_to_its_names_and_has_its_files_alone(server: PageServer) -> None:
    assert server.perfetto is not None
    files = installed()
    assert files is not None
    for path in ("/", "/perfetto.html", f"/{next(iter(files))}", "/nothing"):
        assert perfetto_request(server, path, Host="evil.example").status == 421
        assert perfetto_request(server, path, Host=f"{server.address}:{server.port}").status == 421
        assert perfetto_request(server, path, Origin=server.url.rstrip("/")).status == 403
        assert perfetto_request(server, path, Sec_Fetch_Dest="document").status == 403
    for path in (
        "/index.html",
        "/service_worker.js",
        "/trace_processor",
        "/../../__init__.py",
        "/%2e%2e/LICENSE",
    ):
        assert perfetto_request(server, path).status == 404
    for path, file in files.items():
        assert perfetto_request(server, f"/{path}").body == file.read_bytes()
    for path in ("/", "/perfetto.html", "/nothing"):
        headers = perfetto_request(server, path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["connect-src"] == policy["worker-src"] == policy["font-src"] == "'self'"
        assert policy["frame-ancestors"] == f"'self' {server.url.rstrip('/')}"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert not {"set-cookie", "access-control-allow-origin"} & headers.keys()


def test_a_tunnel_leads_to_both_under_one_name(server: PageServer) -> None:
    assert server.perfetto is not None
    page, other = server.port, server.perfetto.port
    near = perfetto_request(server, "/", Host=f"localhost:{other}")
    assert f"frame-ancestors 'self' http://localhost:{page}" in near.headers["content-security-policy"]
    assert f'content="http://localhost:{page}"'.encode() in near.body
    told = request(server, "POST", "/api/host", Host=f"localhost:{page}", Origin=f"http://localhost:{page}")
    assert told.json["perfetto"] == f"http://localhost:{other}"
    assert told.json["ports"] == [page, other]
    assert f"frame-src http://localhost:{other}" in told.headers["content-security-policy"]


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"trace": 1}', b'{"cut": 1}', b'{"arguments": {"id": "1abc"}}', b'{"arguments": {"redact": ["x"]}}'],
)
def test_a_wrong_request_for_a_trace_is_refused(server: PageServer, body: bytes) -> None:
    assert request(server, "POST", "/api/perfetto", body).json["kind"] == "usage"
    assert request(server, "POST", "/api/perfetto", body, Authorization=None).status == 401


def test_a_trace_is_handed_over_without_what_is_redacted(server: PageServer, trace: str) -> None:
    asked = {"trace": trace, "arguments": {"redact": "names"}}
    got = request(server, "POST", "/api/perfetto", json.dumps(asked).encode())
    assert json.loads(got.headers["profd-trace"])["events"] == 3 * STEPS + 1
    assert b": forward" not in got.body
    whole = request(server, "POST", "/api/perfetto", json.dumps({"trace": trace}).encode())
    assert b": forward" in whole.body
    assert f"ProfilerStep#{SLOW}".encode() in whole.body


@pytest.fixture(scope="module")
def capture(store: Path) -> str:
    """Three ranks whose clocks are 40 ms apart, each to the next."""
    folder = store.parent / "ranks"
    folder.mkdir(exist_ok=True)
    traces, into = OfflineTraces(store), "new"
    for path in files(folder, Plan(ranks=3)):
        into = traces.get(traces.import_file(path, capture=into)["id"])["capture"]
    return into


def test_all_ranks_of_a_capture_open_in_perfetto(browser: Any, server: PageServer, capture: str) -> None:
    """GIVEN ranks whose clocks are apart WHEN the page opens them THEN Perfetto has each by its name, on one axis."""
    tab = opened(browser, server, f"/ranks/{capture}")
    tab.get_by_role("link", name="All ranks in Perfetto").click()
    perfetto = Perfetto(tab)
    assert "All ranks: 270 events. Clocks are compared by collectives" in said(tab)
    rows = perfetto.rows(
        """SELECT p.name, min(s.ts) FROM slice s JOIN thread_track t ON s.track_id = t.id JOIN thread USING (utid)
        JOIN process p USING (upid) WHERE s.name = 'ProfilerStep#0' GROUP BY 1 ORDER BY 1"""
    )
    assert [row[0].partition(" ")[0] for row in rows] == ["rank"] * 3
    begins = [int(row[1]) for row in rows]
    assert max(begins) - min(begins) < 1_000_000
    tab.get_by_role("link", name="Its ranks in profctl ui").click()
    tab.wait_for_selector("h1:has-text('Ranks of')")


def test_all_ranks_are_handed_over_and_a_part_of_them(server: PageServer, capture: str) -> None:
    got = request(server, "POST", "/api/perfetto", json.dumps({"trace": capture[:9]}).encode())
    told = json.loads(got.headers["profd-trace"])
    assert (told["id"], told["events"], told["whole"]) == (capture, 270, True)
    assert "at most (proved)" in told["clocks"]
    step = {"trace": capture, "arguments": {"first_step": 3, "last_step": 3}, "cut": True}
    part = request(server, "POST", "/api/perfetto", json.dumps(step).encode())
    assert 0 < len(part.body) < len(got.body) / 4
    gone = request(server, "POST", "/api/perfetto", json.dumps({"trace": "c00000000dead"}).encode())
    assert gone.json["kind"] == "not_found"


def test_where_it_is_not_installed_the_page_and_the_command_say_how(
    browser: Any, store: Path, trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "installed", lambda: None)
    with serving(library=Library(store)) as server:
        tab = opened(browser, server, f"/perfetto/{trace}")
        assert INSTALL in tab.get_by_role("alert").inner_text()
        assert "frame-src" not in request(server, "GET", "/").headers["content-security-policy"]
    monkeypatch.setattr("profclient.cli.commands.open.installed", lambda: None)
    with pytest.raises(UsageError, match=re.escape(INSTALL)):
        open_trace.callback("", False, 0, None, None, None, None)
