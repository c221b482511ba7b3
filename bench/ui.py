"""`profctl ui`, from the command to what is seen: `python -m bench.ui --events 1000000 --copies 100 --rounds 2`.

A daemon of its own, a trace of `bench/gen_trace.py` (with --copies: so often, one after the other), the page in a real
Chromium. It prints, in ms: the command until the list is there (the browser runs already); of a trace, from the
navigation until each part is there, of the timeline until it is there at all, and until it is no sketch. The first
round finds no index; the others are medians. Then the timeline as it is moved (`bench/ui_moving.py`), what the page
was refused, and memory. Memory of workers is the largest that was seen. With --imports: tiles and other calls at the
daemon beside two imports of a million events (`bench/ui_imports.py`), in so many pairs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from profclient.ui.handler import page_files

from bench import data
from bench.measure import child
from bench.repeated import repeat
from bench.ui_imports import beside_imports
from bench.ui_moving import blank, chosen, memory_mb, moved, resident, settled
from tests.support.chromium import chromium
from tests.support.daemon import start_daemon

PROFCTL: Final = (sys.executable, "-c", "from profclient.cli import main; main()")
HERE: Final = Path(__file__).parent
PARTS: Final = ("Timeline", "Answer", "Steps", "Flame graph", "Top", "Devices", "Findings")
WORKER: Final = b"profd.workers.process"


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--copies", type=int, default=1, help="how often these follow each other in the trace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--imports", type=int, default=0, help="pairs of blocks with and without imports, nothing else")
    parser.add_argument("--kept", type=Path, help="a directory for the trace, which the next run finds there")
    options = parser.parse_args()
    os.environ["PROFD_TEST_UI"] = "1"
    folder = options.kept or Path(tempfile.mkdtemp(prefix="bu-", dir="/tmp"))  # of sockets, whose paths are short
    try:
        trace = _stored(folder, options.events, options.copies)
        shutil.rmtree(folder / "state" / "index", ignore_errors=True)
        daemon = start_daemon(folder)
        try:
            if options.imports:
                path = data.trace(1_000_000, steps=100)
                found = beside_imports(daemon.socket, daemon.environ, trace, path, options.imports)
                print(json.dumps({**_rounded(found), "load": os.getloadavg()[0]}, indent=2))
                return
            with chromium() as browser, largest(daemon.process.pid) as seen:
                rounds = [_round(browser, trace, daemon.environ) for _ in range(options.rounds)]
                found = {"first": rounds[0], **_medians(rounds[1:]), **_open(browser, trace, daemon.environ)}
            index = sum(file.stat().st_size for file in (folder / "state" / "index" / trace).iterdir())
        finally:
            daemon.stop()
        stored = sum(file.stat().st_size for file in (folder / "state" / "traces" / trace).iterdir())
    finally:
        if not options.kept:
            shutil.rmtree(folder)
    assets = sum(len(gzip.compress(data)) for data in page_files().values())
    sizes = {"trace_bytes": stored, "index_bytes": index, "assets_gzip_bytes": assets}
    told = {"events": options.events * options.copies, **found, "worker_rss_mb": seen[0] / 1e6, **sizes}
    print(json.dumps({**_rounded(told), "load": os.getloadavg()[0]}, indent=2))


def _stored(folder: Path, events: int, copies: int) -> str:
    """The id of the trace, which is made where it is not there."""
    there = [one.name for one in (folder / "state" / "traces").glob("[!.]*")]
    if there:
        return there[0]
    once = folder / "once"
    path = str(data.trace(events, steps=100))
    child("bench.ours.engine:store", {"path": path, "out": str(once)})
    found = repeat(once, folder / "state", copies)
    shutil.rmtree(once)
    return found


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]} if rounds else {}


def _rounded(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    return round(found, 3 if found < 1 else 1) if isinstance(found, float) else found


@contextmanager
def _served(environ: dict[str, str]) -> Iterator[tuple[str, int]]:
    """(address with its key, pid) of `profctl ui`."""
    words = [*PROFCTL, "ui", "--no-browser"]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.terminate()


def _round(browser: Any, trace: str, environ: dict[str, str]) -> dict[str, float]:
    begun = time.monotonic()
    with _served(environ) as (url, pid):
        tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        tab.goto(url)
        tab.get_by_role("table", name="Traces").wait_for()
        found = {"command_to_list_ms": _since(begun), "server_rss_without_page_mb": resident(pid) / 1e6}
        begun = time.monotonic()
        tab.goto(f"{url.partition('#')[0]}#/trace/{trace}")
        waiting = list(PARTS)
        while waiting:
            if "to_sharp_timeline_ms" not in found and tab.evaluate(_INDEXED):
                found["to_sharp_timeline_ms"] = _since(begun)
            for part in tab.evaluate(_SETTLED, waiting):
                found[f"to_{part.lower().replace(' ', '_')}_ms"] = _since(begun)
                waiting.remove(part)
            time.sleep(0.02)
        found["server_rss_mb"] = resident(pid) / 1e6
        tab.context.close()
    return found


# The timeline is no sketch (any more), and has all of its tiles.
_INDEXED: Final = """() => {
  const section = document.querySelector('section[aria-label="Timeline"]');
  return Boolean(section?.querySelector(".timeline")) && !section.querySelector("[aria-busy]");
}"""
_SETTLED: Final = """(parts) => parts.filter((part) => {
  const section = document.querySelector(`section[aria-label="${part}"]`);
  const busy = section?.querySelector("[aria-busy]:not(.timeline):not(.building)");
  return section?.checkVisibility() && section.childElementCount > 1 && !busy;
})"""


def _open(browser: Any, trace: str, environ: dict[str, str]) -> dict[str, Any]:
    """What is there when all answers are, and moved about in."""
    with _served(environ) as (url, pid):
        tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        tab.goto(url)
        tab.get_by_role("table", name="Traces").wait_for()
        tab.goto(f"{url.partition('#')[0]}#/trace/{trace}")
        for part in PARTS:
            settled(tab, part)
        refused = tab.get_by_role("alert").all_inner_texts()
        found = {"refused": refused, **moved(tab), **chosen(tab)}
        found |= {"tab_rss_mb": memory_mb(browser), "server_rss_after_mb": resident(pid) / 1e6}
        return {**found, **blank(tab)}


@contextmanager
def largest(pid: int) -> Iterator[list[int]]:
    """Of the workers of a daemon the most resident bytes that one had; looked at ten times a second."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            for path in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    if (
                        int((path / "stat").read_text().rpartition(")")[2].split()[1]) == pid
                        and WORKER in (path / "cmdline").read_bytes()
                    ):
                        seen[0] = max(seen[0], resident(int(path.name)))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def _since(begun: float) -> float:
    return 1000 * (time.monotonic() - begun)


if __name__ == "__main__":
    main()
