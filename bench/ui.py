"""`profctl ui`, from the command to what is seen: `python -m bench.ui --events 1000000`.

A daemon of its own, a trace of `bench/gen_trace.py`, the page in a real Chromium. It prints, in ms: the command until
the list is there (the browser runs already); of a trace, from the navigation until its answer is there, then steps,
graph, table and findings. Then bytes: of the page's files, compressed, and of the server's memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from profclient.ui.handler import page_files

from tests.support.chromium import chromium
from tests.support.daemon import running_daemon

PROFCTL: Final = (sys.executable, "-c", "from profclient.cli import main; main()")
HERE: Final = Path(__file__).parent
PARTS: Final = ("Answer", "Steps", "Flame graph", "Top", "Findings")


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["PROFD_TEST_UI"] = "1"
    folder = Path(tempfile.mkdtemp(prefix="bench-ui-"))
    try:
        with running_daemon() as daemon, chromium() as browser:
            trace = _imported(folder, options.events, daemon.environ)
            found = [_round(browser, trace, daemon.environ) for _ in range(options.rounds)]
    finally:
        shutil.rmtree(folder)
    medians = {name: round(statistics.median(one[name] for one in found), 1) for name in found[0]}
    assets = sum(len(gzip.compress(data)) for data in page_files().values())
    load = os.getloadavg()[0]
    print(json.dumps({"events": options.events, **medians, "assets_gzip_bytes": assets, "load": load}, indent=2))


def _imported(folder: Path, events: int, environ: dict[str, str]) -> str:
    file = folder / "t.json"
    words = [sys.executable, str(HERE / "gen_trace.py"), "--events", str(events), "--steps", "100", "--out", str(file)]
    subprocess.run([*words, "--truth", str(folder / "t.npz")], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([*PROFCTL, "import", str(file), "--json"], env=environ, check=True, capture_output=True)
    return str(json.loads(done.stdout)["trace"])


def _round(browser: Any, trace: str, environ: dict[str, str]) -> dict[str, float]:
    begun = time.monotonic()
    words = [*PROFCTL, "ui", "--no-browser"]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            tab.goto(url)
            tab.get_by_role("table", name="Traces").wait_for()
            found = {"command_to_list_ms": _since(begun)}
            begun = time.monotonic()
            tab.goto(f"{url.partition('#')[0]}#/trace/{trace}")
            for part in PARTS:
                found[f"to_{part.lower().replace(' ', '_')}_ms"] = _shown(tab, part, begun)
            found["server_rss_mb"] = _resident(server.pid) / 1e6
            tab.context.close()
        finally:
            server.send_signal(signal.SIGINT)
    return found


def _shown(tab: Any, part: str, begun: float) -> float:
    tab.locator(f"section[aria-label='{part}'] > :nth-child(2):not([aria-busy])").wait_for()
    return _since(begun)


def _since(begun: float) -> float:
    return 1000 * (time.monotonic() - begun)


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
