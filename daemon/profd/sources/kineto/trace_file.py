"""The edges of a finished trace file: its process, its window, whether it is empty.

Not a decoder: a bounded look at bytes that a worker will read properly.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEAD_BYTES: Final = 256 << 10  # device properties of a large host stand before the id
_TAIL_BYTES: Final = 1 << 20
_SCAN_BYTES: Final = 8 << 20
_STEP: Final = b'"Optimizer.step#'
_TRACE_ID: Final = re.compile(rb'"trace_id"\s*:\s*"([^"]{1,128})"')
_BASE: Final = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_STAMP: Final = rb'[^{}]{0,200}?"ts"\s*:\s*(\d{1,19}(?:\.\d{1,6})?)'
_WINDOW_START: Final = re.compile(rb'"name"\s*:\s*"Iteration Start: PyTorch Profiler"' + _STAMP)
_LABELS: Final = re.compile(rb'"name"\s*:\s*"process_labels"' + _STAMP)  # within 0.1 ms of the start
_WINDOW_END: Final = re.compile(rb'"name"\s*:\s*"Record Window End"' + _STAMP)
_SPAN: Final = re.compile(rb'"ph"\s*:\s*"X"')


@dataclass(frozen=True, slots=True)
class Edges:
    """Read from the first and last bytes. Times are Unix ns, None where not found."""

    trace_id: str | None
    complete: bool  # the closing key is there
    empty: bool  # it holds no span at all
    start_ns: int | None
    end_ns: int | None
    spans: int = 0  # events with a duration; from the density of both ends in a file that is long

    @property
    def window_ns(self) -> int | None:
        """How long libkineto recorded by its own account."""
        return None if self.start_ns is None or self.end_ns is None else self.end_ns - self.start_ns


def edges(path: Path) -> Edges:
    """Look at a trace in the journal. OSError if it cannot be read."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        tail = file.read(_TAIL_BYTES)
    found = _TRACE_ID.search(head)
    base = _BASE.search(head)
    base_ns = int(base[1]) if base else None
    seen = len(_SPAN.findall(head))
    if size > _HEAD_BYTES:
        seen = (seen + len(_SPAN.findall(tail))) * size // (len(head) + len(tail))
    return Edges(
        trace_id=found[1].decode("utf-8", "replace") if found else None,
        complete=b'"traceName"' in tail and tail.rstrip().endswith(b"}"),
        empty=size <= _HEAD_BYTES and not _SPAN.search(head),
        # A trace without spans names no start; its first thread or process label stands there.
        start_ns=_time(base_ns, _WINDOW_START.findall(tail) or _LABELS.findall(tail)),
        end_ns=_time(base_ns, _WINDOW_END.findall(tail)),
        spans=seen,
    )


def _time(base_ns: int | None, stamps: list[bytes]) -> int | None:
    if base_ns is None or not stamps:
        return None
    whole, _, part = stamps[-1].partition(b".")
    absolute = base_ns + int(whole) * 1000 + int(part[:3].ljust(3, b"0"))
    return absolute if absolute < 1 << 63 else None


def optimizer_steps(path: Path, enough: int) -> int:
    """How many optimizer steps a trace shows, counted up to `enough`. OSError if it cannot be read."""
    count = 0
    kept = b""
    with path.open("rb") as file:
        while count < enough and (piece := file.read(_SCAN_BYTES)):
            piece = kept + piece
            count += piece.count(_STEP)
            if b"\0" in piece:  # JSON has none: a hole, which may be as long as its owner likes
                break
            kept = piece[-(len(_STEP) - 1) :]
    return count
