"""XSpace in beside protobuf's own parse of the same bytes, and its derived lines beside XProf's trace viewer.

CPU time of all threads, in pairs: both run in turn, so that a busy machine is busy for both.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from profd.workers.child import ALLOCATOR

from bench import data
from bench.measure import SCRATCH, Row, child

EVENTS, LARGER = 360_000, 1_000_000
PAIRS = 5
PARSE_BAR, MEMORY_BAR, LINES_BAR = 3.0, 3.0, 10.0
XPROF = SCRATCH / "xprof" / "bin" / "python"


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    path = _file(EVENTS)
    stored = SCRATCH / "stored-xspace"
    yield from _stored(path, stored)
    yield _larger(SCRATCH / "stored-xspace-larger")
    yield _lines(path, stored)


def generate(events: int) -> str:
    """Where the file is, which is made if it is not there."""
    return str(data.xspace(events))


def _file(events: int) -> Path:
    # In a child: what a process has once held counts as held by its children, too.
    return Path(child("bench.cases.xspace:generate", {"events": events})["result"])


def _stored(path: Path, out: Path) -> Iterator[Row]:
    size = path.stat().st_size
    arguments = {"path": str(path), "out": str(out), "kind": "xspace"}
    ours, peer = _pairs(
        lambda: child("bench.ours.engine:store", arguments, environment=ALLOCATOR),
        lambda: child("bench.peers.protobuf_parse:parse", {"path": str(path)}),
    )
    ratio = statistics.median(a["cpu_seconds"] / b["cpu_seconds"] for a, b in zip(ours, peer, strict=True))
    yield Row(
        "xspace",
        f"XSpace of {EVENTS / 1e3:g}k events, {size / 1e6:.0f} MB, to a stored trace, to protobuf's parse",
        f"{_cpu(ours):.3f} s",
        f"{_cpu(peer):.3f} s",
        ratio=ratio,
        bar=f"<= {PARSE_BAR:g}x",
        met=ratio <= PARSE_BAR,
        note=f"phases {ours[-1]['result'].get('timings_ns')}",
    )
    yield _memory(path, max(run["peak_bytes"] for run in ours))


def _larger(out: Path) -> Row:
    """A part of the memory does not depend on the file: the stretch of rows that is sorted at a time."""
    path = _file(LARGER)
    arguments = {"path": str(path), "out": str(out), "kind": "xspace"}
    row = _memory(path, child("bench.ours.engine:store", arguments, environment=ALLOCATOR)["peak_bytes"])
    shutil.rmtree(out)
    return row


def _memory(path: Path, peak: int) -> Row:
    size = path.stat().st_size
    idle = child("bench.ours.engine:nothing", {}, environment=ALLOCATOR)["peak_bytes"]
    grown = (peak - idle) / size
    shown = f"{peak / 1e6:.0f} MB, of them {idle / 1e6:.0f} for the worker itself"
    what = f"peak memory of a file of {size / 1e6:.0f} MB, to the file"
    return Row("xspace", what, shown, ratio=grown, bar=f"<= {MEMORY_BAR:g}x", met=grown <= MEMORY_BAR)


def _lines(path: Path, stored: Path) -> Row:
    what = "grouping and derived lines of the same, with their JSON: how many times faster than XProf's trace viewer"
    query = {"job": "timeline", "trace_dir": str(stored), "repeat": 3}

    def ours() -> dict[str, Any]:
        return child("bench.ours.engine:query_cpu", query, environment=ALLOCATOR)

    if not XPROF.exists():
        taken = statistics.median(ours()["result"])
        note = "xprof is not there (make .bench/xprof/.installed): 3 to 9 s as measured elsewhere"
        return Row("xspace", what, f"{taken:.2f} s", bar=f">= {LINES_BAR:g}x", note=note)
    mine, peer = _pairs(ours, lambda: child("bench.peers.xprof_viewer:show", {"path": str(path)}, str(XPROF)), times=3)
    seconds = [statistics.median(run["result"]) for run in mine]
    ratio = statistics.median(b["cpu_seconds"] / a for a, b in zip(seconds, peer, strict=True))
    return Row(
        "xspace",
        what,
        f"{statistics.median(seconds):.3f} s",
        f"{_cpu(peer):.2f} s, {max(run['peak_bytes'] for run in peer) / 1e6:.0f} MB",
        ratio=ratio,
        bar=f">= {LINES_BAR:g}x",
        met=ratio >= LINES_BAR,
        note=f"ours takes {max(run['peak_bytes'] for run in mine) / 1e6:.0f} MB",
    )


def _pairs(
    ours: Callable[[], dict[str, Any]], peer: Callable[[], dict[str, Any]], times: int = PAIRS
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    found = [(ours(), peer()) for _ in range(times)]
    return [pair[0] for pair in found], [pair[1] for pair in found]


def _cpu(runs: list[dict[str, Any]]) -> float:
    return statistics.median(run["cpu_seconds"] for run in runs)
