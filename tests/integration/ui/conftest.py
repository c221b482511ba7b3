"""A daemon with two traces and a hostile one, `profctl ui` on it, and a browser that came in by the private file."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from profclient.cli.units import duration

from tests.support.chromium import chromium, new_tab
from tests.support.daemon import running_daemon
from tests.support.waiting import PATIENCE_SECONDS, until

PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
NOTES_ITS_ARGUMENTS = '#!/bin/sh\necho "$@" > "$0.told"\n'
MARKUP = "<img src=x onerror=\"document.title='taken'\">"
FORMULA = "=1+cmd|' /C calc'!A0"
HOSTILE = (
    MARKUP,
    FORMULA,
    "</script><script>document.title='taken'</script>",
    "bidi \u202eevil\u2066",
    "nul \x00 esc \x1b[31m",
    "x" * 1_000_000,
)
STEPS, SLOW = 12, 7
# The page hears of the address before us: what it has then is no longer that of the address before.
GO = """(hash) => new Promise((done) => {
  if (location.hash === hash) return done();
  addEventListener("hashchange", () => done(), { once: true });
  location.hash = hash;
})"""
# A chart that has just come is drawn when its width is known, a frame later, and may ask for tiles then.
DRAWN = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  do {
    for (let one = 0; one < 3; one++) await frame();
  } while (document.querySelector("[aria-busy]"));
}"""
# Of a picture: its size, and how many pixels have each of these colors of the page.
READ = """async ([data, names]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const on = canvas.getContext("2d", { willReadFrequently: true });
  const found = names.map((name) => {
    on.fillStyle = getComputedStyle(document.body).getPropertyValue(`--${name}`);
    on.fillRect(0, 0, 1, 1);
    return on.getImageData(0, 0, 1, 1).data.slice(0, 3).join();
  });
  on.drawImage(image, 0, 0);
  const counts = new Map(found.map((color) => [color, 0]));
  const pixels = on.getImageData(0, 0, image.width, image.height).data;
  for (let at = 0; at < pixels.length; at += 4) {
    const color = pixels.slice(at, at + 3).join();
    if (counts.has(color)) counts.set(color, counts.get(color) + 1);
  }
  return { width: image.width, height: image.height, pixels: found.map((color) => counts.get(color)) };
}"""


def event(name: str, at: float, lasts: float, cat: str = "cpu_op") -> dict[str, Any]:
    """A record of a Chrome trace; times in us."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 2, "ts": 1_700_000_000_000_000 + at, "dur": lasts}


def training(matmul: float) -> list[dict[str, Any]]:
    """Steps of a loop, one of which writes a checkpoint."""
    events, at = [], 0.0
    for number in range(STEPS):
        lasts = 9000.0 if number == SLOW else 1000.0
        events.append(event(f"ProfilerStep#{number}", at, lasts, "user_annotation"))
        events += [event("train.py(7): forward", at + 10, 600, "python_function"), event("aten::mm", at + 20, matmul)]
        if number == SLOW:
            events.append(event("train.py(9): save", at + 700, 8000, "python_function"))
        at += lasts + 10
    return events


@dataclass
class Page:
    """The tab that everything is done in; what it complained of."""

    tab: Any
    url: str
    environ: dict[str, str]
    traces: dict[str, str]
    key_file: str
    server: subprocess.Popen[str]
    complaints: list[str] = field(default_factory=list)

    def go(self, page: str) -> Any:
        """To a page, until everything in it is there."""
        if self.tab.url.startswith(self.url):
            self.tab.evaluate(GO, f"#{page}")
        else:  # it is elsewhere, and has no page of ours that could hear of it
            self.tab.goto(f"{self.url}#{page}")
        return self.settled()

    def settled(self) -> Any:
        """The tab, when nothing is asked for any more, and what has come is drawn."""
        self.tab.wait_for_selector("h1")
        self.tab.wait_for_selector("[aria-busy]", state="detached")
        self.tab.evaluate(DRAWN)
        return self.tab

    def json(self, *words: str) -> Any:
        """What `profctl` prints."""
        done = subprocess.run([*PROFCTL, *words, "--json"], env=self.environ, capture_output=True, check=True)
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder: Path = tmp_path_factory.mktemp("ui")
    noting = folder / "browser"
    noting.write_text(NOTES_ITS_ARGUMENTS)
    noting.chmod(0o755)
    with running_daemon(environ={}) as daemon:
        environ = {**daemon.environ, "BROWSER": str(noting), "TMPDIR": str(folder)}
        files = {"before": training(300), "after": training(500), "hostile": [event(name, 10, 5) for name in HOSTILE]}
        for name, events in files.items():
            (folder / f"{name}.json").write_text(json.dumps({"traceEvents": events}))
        paths = [str(folder / f"{name}.json") for name in files]
        done = subprocess.run([*PROFCTL, "import", *paths, "--json"], env=environ, capture_output=True, check=True)
        traces = {name: found["trace"] for name, found in zip(files, json.loads(done.stdout), strict=True)}
        server = subprocess.Popen(
            [*PROFCTL, "ui"], env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            told = Path(f"{noting}.told")
            until(lambda: told.exists() and told.read_text().endswith("\n"), "the browser is told of a file")
            yield from _opened(browser, told.read_text().strip(), environ, traces, server)
        finally:
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=PATIENCE_SECONDS)
            assert "Traceback" not in said, said


def _opened(
    browser: Any, file: str, environ: dict[str, str], traces: dict[str, str], server: subprocess.Popen[str]
) -> Iterator[Page]:
    tab = new_tab(browser, viewport={"width": 1280, "height": 900})
    text = Path(file.removeprefix("file://")).read_text()
    url = text.partition('action="')[2].partition("enter")[0]
    opened = Page(tab, url, environ, traces, file, server)
    tab.on("console", lambda said: said.type == "error" and opened.complaints.append(said.text))
    tab.on("pageerror", lambda error: opened.complaints.append(error.stack or str(error)))
    assert os.stat(file.removeprefix("file://")).st_mode & 0o077 == 0
    tab.goto(file)
    tab.wait_for_url(f"{url}#/")
    opened.settled()
    yield opened


def cells(tab: Any, table: str) -> list[list[str]]:
    """The rows of a table."""
    rows = tab.get_by_role("table", name=table, exact=True).locator("tbody tr").all()
    return [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]


def top_row(row: dict[str, Any]) -> list[str]:
    """A row of `top --json`, as the page's table has it."""
    times = [duration(row[key]) for key in ("self_cpu_time_total_ns", "cpu_time_total_ns")]
    return [*times, f"{row['count']:,}", row["device_type"], row["name"]]


def saved(page: Any, within: Any, colors: tuple[str, ...], folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the file that a chart is saved as, and what is in it. `page`: what has a `tab`."""
    with page.tab.expect_download() as download:
        within.get_by_role("button", name="Save picture").first.click()
    file = folder / "picture.png"
    download.value.save_as(file)
    data = base64.b64encode(file.read_bytes()).decode()
    return download.value.suggested_filename, page.tab.evaluate(READ, [data, list(colors)])
