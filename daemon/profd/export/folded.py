"""Folded stacks: one line per distinct stack, as flamegraph.pl, inferno and speedscope read them.

A line is frames joined by `;`, outermost first, a space and the self time in
ns. The first frame is the thread. Device work stands on the stack that
launched it, under a root of its own device track, so that CPU and device time are
never added up in one box.
"""

from __future__ import annotations

from typing import BinaryIO, Final

import numpy as np

from profd import _engine
from profd.export.spans import read_spans, track_titles
from profd.export.stacks import Stacks, own_time
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress

_ESCAPES: Final = str.maketrans({";": ":", "\n": " ", "\r": " "})
_LINES_AT_ONCE: Final = 4096


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write the stacks of a window (Unix ns) or the whole trace; returns how many events they stand for.

    The time of events shorter than `min_duration_ns` is that of their callers.
    """
    progress("stacks", 0.0)
    spans = read_spans(reader, window, min_duration_ns)
    if not len(spans.row):
        return 0
    parent, own = own_time(spans)
    stacks = Stacks(spans, parent)
    names = ["", *map(_frame, spans.names)]
    titles = [_frame(title) for title in track_titles(reader)]
    time = _engine.sum_by(stacks.of, len(stacks), own)
    drawn = np.flatnonzero(time > 0)
    for at in range(0, len(drawn), _LINES_AT_ONCE):
        some = drawn[at : at + _LINES_AT_ONCE]
        progress("stacks", at / len(drawn))
        lines = []
        columns = (stacks.thread[some].tolist(), stacks.frames(some), time[some].tolist())
        for thread, frames, ns in zip(*columns, strict=True):
            title = titles[thread] if thread < len(titles) else f"thread {thread}"
            lines.append(f"{';'.join([title, *map(names.__getitem__, frames)])} {ns}\n")
        out.write("".join(lines).encode("utf-8", "replace"))
    return len(spans.row)


def _frame(name: str) -> str:
    return name.translate(_ESCAPES) or "?"
