"""Tiles of a timeline: building their pyramid, and answers from it."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

from profd.query.tiles import kept
from profd.query.tiles.answer import tiles
from profd.query.tiles.pyramid import built
from profd.segments.reader import TraceReader
from profd.segments.rollups import Rollups, rules_of

WIDTH, LIMIT = 1200, 50_000
RULES = rules_of("tiles", 2)


def measure(directory: str, scratch: str, windows: int) -> dict[str, Any]:
    """Of a stored trace: seconds of building, bytes, and of each answer the seconds, wall and CPU."""
    trace, fresh, place = Path(directory), Path(scratch) / "fresh", Path(scratch) / "kept"
    for folder in (fresh, place):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    reader = TraceReader(trace, Rollups(None, fresh, 0, RULES))
    wall, cpu = time.monotonic(), time.process_time()
    pyramid = built(reader)
    kept.keep(reader, pyramid)
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    for file in fresh.iterdir():
        file.rename(place / file.name.partition(".")[2])
    answers = [_answer(trace, place, window) for window in _windows(reader, windows)]
    return {
        "events": len(reader),
        "build_wall": wall,
        "build_cpu": cpu,
        "bytes": sum(file.stat().st_size for file in place.iterdir()),
        "trace_bytes": sum(file.stat().st_size for file in trace.iterdir()),
        "wall_p50": statistics.median(one for one, _ in answers),
        "wall_p95": _p95([one for one, _ in answers]),
        "cpu_p95": _p95([one for _, one in answers]),
        "cpu_p50": statistics.median(one for _, one in answers),
    }


def _windows(reader: TraceReader, count: int) -> list[tuple[int, int]]:
    rng, span = random.Random(1), (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0)
    found = []
    for _ in range(count):
        wide = max(1000, int(span * 2 ** -rng.uniform(0, 16)))
        low = rng.randrange(0, span - wide + 1)
        found.append((low, low + wide))
    return found


def _answer(trace: Path, place: Path, window: tuple[int, int]) -> tuple[float, float]:
    wall, cpu = time.monotonic(), time.process_time()
    reader = TraceReader(trace, Rollups(place, None, 0, RULES))
    given: dict[str, Any] = {
        "first_track": 0,
        "last_track": None,
        "limit": LIMIT,
        "with_tracks": False,
        "sketch": False,
    }
    b"".join(tiles(reader, from_ns=window[0], to_ns=window[1], width=WIDTH, **given))
    return time.monotonic() - wall, time.process_time() - cpu


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]
