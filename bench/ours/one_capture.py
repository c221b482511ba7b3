"""One stretch of training under torch's profiler and the observer at once: what each takes from stop to answer."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

ARENA_BYTES = 256 << 20


def record(steps: int, chunks: str, trace: str) -> dict[str, float]:
    """CPU seconds of either's stop, of torch's answers and of our encoding; writes both recordings to files."""
    import torch
    from profclient import _recorder
    from torch.profiler import ProfilerActivity, profile

    from bench.ours.observer import MODELS, OPS, load_observer
    from bench.ours.wire import acked

    torch.set_num_threads(1)
    step = MODELS["tiny MLP"]()
    for _ in range(20):
        step()
    arena = os.dup(_recorder.arm(arena_bytes=ARENA_BYTES, sources=OPS))
    _recorder.populate()
    observer = load_observer()
    profiler = profile(activities=[ProfilerActivity.CPU])
    profiler.start()
    observer.start(0)
    for _ in range(steps):
        step()

    taken = {}
    clock = _Clock()
    observer.stop()
    _recorder.disarm()
    taken["our stop"] = clock.lap()
    written = acked(arena)
    taken["encode"] = clock.lap()
    profiler.stop()
    taken["stop"] = clock.lap()
    events = profiler.events()
    taken["events"] = clock.lap()
    profiler.key_averages()
    taken["key averages"] = clock.lap()
    if _recorder.totals()["arena_full"]:
        raise RuntimeError("the arena is too small for this measurement")
    Path(chunks).write_bytes(b"".join(written))
    profiler.export_chrome_trace(trace)
    return {**taken, "torch events": len(events or ())}


class _Clock:
    def __init__(self) -> None:
        self._last = time.process_time()

    def lap(self) -> float:
        """CPU seconds since the last one."""
        now = time.process_time()
        taken, self._last = now - self._last, now
        return taken


def as_text(taken: dict[str, Any]) -> str:
    """`a 0.1 s, b 2 ms` of seconds."""
    return ", ".join(f"{what} {seconds * 1e3:.0f} ms" for what, seconds in taken.items())
