"""The way into the page in a real Chromium: no key is left behind, and whoever else is on the host stays out."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from profclient.ui.asking import Library
from profclient.ui.server import PageServer

from tests.integration.ui.conftest import PROFCTL, Page
from tests.support.chromium import new_tab

pytestmark = pytest.mark.slow


def test_the_way_in_leaves_no_key_behind(page: Page) -> None:
    file = page.key_file.removeprefix("file://")
    assert not Path(file).exists()
    assert page.tab.url == f"{page.url}#/"
    assert page.tab.context.cookies() == []
    session = page.tab.evaluate("() => sessionStorage.getItem('profd-session')")
    assert len(session) > 40
    words = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                words.append((process / name).read_bytes())
            except OSError:
                continue
    assert len(words) > 2
    assert not any(session.encode() in text for text in words)
    page.tab.go_back()  # to the file, which is gone; nothing in between asks for the form again
    page.go("/")
    assert page.tab.get_by_role("heading", name="Traces").is_visible()


def test_another_tab_is_let_in_by_the_first_and_another_browser_is_not(page: Page, browser: Any) -> None:
    other = page.tab.context.new_page()
    other.goto(f"{page.url}#/trace/{page.traces['before']}")
    other.get_by_role("slider", name="Steps").wait_for()
    other.close()
    stranger = new_tab(browser)
    stranger.goto(f"{page.url}#/trace/{page.traces['before']}")
    stranger.get_by_role("alert").wait_for()
    assert "This tab has no key" in stranger.get_by_role("alert").inner_text()
    assert "train.py" not in stranger.content()
    stranger.context.close()


def test_a_printed_address_is_good_once_and_leaves_no_key_behind(page: Page, browser: Any) -> None:
    words = [*PROFCTL, "ui", page.traces["before"], "--no-browser"]
    with subprocess.Popen(
        words, env=page.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            tab = new_tab(browser)
            tab.goto(address)
            tab.get_by_role("slider", name="Steps").wait_for()
            place = f"{address.partition('#')[0]}#/trace/{page.traces['before']}"
            assert tab.url == place
            assert tab.evaluate("() => history.length") <= 2  # about:blank, and this page
            tab.reload()
            tab.get_by_role("slider", name="Steps").wait_for()
            other = new_tab(browser)
            other.goto(address)
            other.get_by_role("alert").wait_for()
            assert "was used already" in other.get_by_role("alert").inner_text()
            assert "key" not in other.url
            tab.context.close()
            other.context.close()
        finally:
            server.send_signal(signal.SIGINT)


ATTACKS = """async (url) => {
  const tried = {};
  const post = (path, given) => fetch(url + path, { method: "POST", ...given }).then((got) => got.text());
  const tries = {
    page: () => fetch(url).then((got) => got.text()),
    file: () => fetch(url + "static/app.js").then((got) => got.text()),
    module: () => import(url + "static/ask.js").then((got) => got.traces()),
    asked: () => post("api/traces", { body: "{}", headers: { Authorization: "Bearer x" } }),
    blind: () => fetch(url + "api/traces", { method: "POST", mode: "no-cors", body: "{}" }).then((got) => got.text()),
    entered: () => post("enter", { body: new URLSearchParams({ key: "x" }) }),
  };
  for (const [name, attempt] of Object.entries(tries)) {
    tried[name] = await attempt().catch(() => "nothing");
  }
  const frame = document.createElement("iframe");
  frame.src = url;
  const loaded = new Promise((resolve) => { frame.onload = resolve; });
  document.body.append(frame);
  await loaded;
  return tried;
}"""


def test_a_page_of_another_server_gets_nothing(page: Page, browser: Any) -> None:
    """Any user's server on another port of this host, in the browser that has the key."""
    with another_server() as other:
        tab = page.tab.context.new_page()
        tab.goto(other)
        tried = tab.evaluate(ATTACKS, page.url)
        assert set(tried.values()) == {"nothing"}
        assert len(tab.frames) == 2
        assert not any(frame.url.startswith(page.url) for frame in tab.frames)
        tab.close()


OTHER = {"/": ("text/html", "<!doctype html><title>other</title><body></body>")}

# For good: a worker that reads what our page is given, and files of ours with another content.
LEAVES = {
    "/": ("text/html", """<!doctype html><title>other</title><script src="/static/enter.js"></script><script>
        navigator.serviceWorker.register("/static/worker.js", {scope: "/"}).then(() => navigator.serviceWorker.ready)
          .then(() => { document.title = "left"; });</script>"""),
    "/static/enter.js": ("text/javascript", "document.title = 'taken'"),
    "/static/worker.js": ("text/javascript", """
        self.addEventListener("install", () => self.skipWaiting());
        self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
        self.addEventListener("fetch", (event) => event.respondWith(new Response(
          "<!doctype html><title>taken</title><h1>Traces</h1>", {headers: {"Content-Type": "text/html"}})));"""),
}  # fmt: skip


@pytest.mark.parametrize("address", ["file", "printed"])
def test_what_another_users_server_left_in_the_browser_meets_no_page_of_ours(
    browser: Any, tmp_path: Path, address: str
) -> None:
    """GIVEN a visit to another user's server at the port that ours has later THEN the browser asks ours."""
    tab = new_tab(browser)
    with another_server(LEAVES) as other:
        tab.goto(other)
        tab.wait_for_function("() => document.title === 'left'")
        port = int(other.rstrip("/").rpartition(":")[2])
    with PageServer(Library(tmp_path), "/", port) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            entrance = tmp_path / "open.html"
            entrance.write_text(server.entrance)
            tab.goto(entrance.as_uri() if address == "file" else f"{server.url}#key={server.keys.for_terminal()}")
            tab.get_by_role("heading", name="Traces").wait_for()
            assert tab.title() == "Traces · profd"
        finally:
            tab.context.close()
            server.stop()
            thread.join()


@contextmanager
def another_server(files: Mapping[str, tuple[str, str]] = OTHER) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = files.get(self.path, files["/"])
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Cache-Control", "max-age=31536000, immutable")
            self.send_header("Service-Worker-Allowed", "/")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
