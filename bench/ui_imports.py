"""Tiles at the daemon, and other calls, while two imports of the same user go on: turn about with none of them."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from profclient.connection import Daemon
from profclient.traces import RemoteTraces

from bench.ui_moving import p95

IMPORTS: Final = 2
LISTED: Final = 1000
ASKED: Final = 40  # tiles of a block, each with other calls behind it
WIDTH, LIMIT = 1200, 20_000
_IMPORT: Final = "from profclient.cli import main; main()"


def beside_imports(socket: Path, environ: dict[str, str], trace: str, path: Path, rounds: int) -> dict[str, Any]:
    """Of so many pairs of blocks: p50 and p95 of tiles in ms, and of other calls, without and with imports of a file.

    `others_ratio`: how much longer these take with imports, in the middle of the pairs.
    """
    tiles: dict[bool, list[float]] = {False: [], True: []}
    others: dict[bool, list[float]] = {False: [], True: []}
    ratios = []
    with Daemon(socket) as daemon:
        traces = RemoteTraces(daemon)
        windows = _windows(traces, trace)
        for number in range(rounds):
            block: dict[bool, float] = {}
            for busy in (False, True) if number % 2 == 0 else (True, False):
                with _importing(environ, path, traces if busy else None):
                    seen = [_asked(traces, trace, next(windows)) for _ in range(ASKED)]
                tiles[busy] += [tile for tile, _ in seen]
                others[busy] += [other for _, other in seen]
                block[busy] = statistics.median(other for _, other in seen)
            ratios.append(block[True] / block[False])
    told: dict[str, Any] = {"rounds": rounds, "others_ratio": statistics.median(ratios)}
    for busy, word in ((False, "alone"), (True, "beside")):
        told |= {f"tiles_p50_ms_{word}": statistics.median(tiles[busy]), f"tiles_p95_ms_{word}": p95(tiles[busy])}
        told |= {f"others_p50_ms_{word}": statistics.median(others[busy]), f"others_p95_ms_{word}": p95(others[busy])}
    return told


def _windows(traces: RemoteTraces, trace: str) -> Iterator[tuple[int, int]]:
    """Of all sizes, without end; the index is there behind the first question."""
    told = _tiles(traces, trace, (0, 1 << 62))
    span = int(told["end_ns"]) - int(told["start_ns"])
    rng = random.Random(1)
    while True:
        wide = max(1000, int(span * 2 ** -rng.uniform(0, 16)))
        low = rng.randrange(0, max(span - wide, 0) + 1)
        yield low, low + wide


def _tiles(traces: RemoteTraces, trace: str, window: tuple[int, int]) -> Any:
    given = {"from_ns": window[0], "to_ns": window[1], "width": WIDTH, "limit": LIMIT}
    return traces.ask("tiles", trace, **given).value()


def _asked(traces: RemoteTraces, trace: str, window: tuple[int, int]) -> tuple[float, float]:
    """Ms of a tile, and of an answer that is kept and what the daemon itself knows, one after the other."""
    begun = time.monotonic()
    _tiles(traces, trace, window)
    tiled = time.monotonic()
    traces.ask("steps", trace).value()
    traces.get(trace)
    return 1000 * (tiled - begun), 1000 * (time.monotonic() - tiled)


@contextmanager
def _importing(environ: dict[str, str], path: Path, traces: RemoteTraces | None) -> Iterator[None]:
    """Imports, one after the other in each of two threads, from the first one's begin on; what they stored goes again.

    Without `traces`: nothing is imported.
    """
    over, begun = threading.Event(), threading.Barrier(IMPORTS + 1)
    words = [sys.executable, "-c", _IMPORT, "import", str(path)]

    def go_on() -> None:
        first = True
        while not over.is_set():
            with subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
                if first:
                    begun.wait()
                    first = False
                one.wait()

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(IMPORTS if traces else 0)]
    before = {one["id"] for one in traces.newest(LISTED)} if traces else set()
    for one in threads:
        one.start()
    if traces:
        begun.wait()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join()
        if traces:
            for made in {one["id"] for one in traces.newest(LISTED)} - before:
                traces.delete(made)
