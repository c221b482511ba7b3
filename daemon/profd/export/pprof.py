"""pprof's gzip-compressed profile.proto, for `go tool pprof`, Speedscope, Pyroscope and others.

A sample is a distinct stack with three values: how often its innermost frame
was called, its own time on the CPU and its own time on devices, in ns. pprof
adds them up to totals. Threads are labels of samples, not frames, so
that pprof merges the same stack of several threads unless asked not to
(`-tagfocus thread=…`). Device work stands on the stack that launched it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

from profd import _engine
from profd.events.table import Array
from profd.export import wire
from profd.export.spans import read_spans, track_titles
from profd.export.stacks import Stacks, own_time
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress

# `file.py(12): function`, as torch.profiler and our sampler name Python functions.
_PYTHON_FRAME: Final = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>.+)", re.DOTALL)
_BYTES_AT_ONCE: Final = 1 << 18
_STACKS_AT_ONCE: Final = 4096


class _Strings:
    """The string table: "" first, each string once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    def encoded(self) -> Iterator[bytes]:
        return (wire.text(6, word) for word in self._numbers)


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write a profile, not compressed; returns how many events it stands for."""
    progress("stacks", 0.0)
    spans = read_spans(reader, window, min_duration_ns)
    strings = _Strings()
    head = [
        _value_type(1, strings, "calls", "count"),
        _value_type(1, strings, "cpu", "nanoseconds"),
        _value_type(1, strings, "device", "nanoseconds"),
        wire.integer(9, max(0, reader.meta.start_ns or 0)),
        wire.integer(10, max(0, (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0))),
        wire.integer(13, strings.number(reader.meta.title)),
        wire.integer(14, strings.number("cpu")),
    ]
    out.write(b"".join(head))
    used: set[int] = set()
    if len(spans.row):
        parent, own = own_time(spans)
        stacks = Stacks(spans, parent)
        values = [
            np.bincount(stacks.of, minlength=len(stacks)),
            _engine.sum_by(stacks.of, len(stacks), np.where(spans.on_cpu, own, 0)),
            _engine.sum_by(stacks.of, len(stacks), np.where(spans.on_cpu, 0, own)),
        ]
        _write_samples(out, _samples(stacks, values, strings, track_titles(reader), used), progress)
    for frame in sorted(used):
        out.write(_frame(frame, spans.names[frame - 1] if frame else "", strings))
    for word in strings.encoded():
        out.write(word)
    return len(spans.row)


def _value_type(field: int, strings: _Strings, kind: str, unit: str) -> bytes:
    return wire.message(field, wire.integer(1, strings.number(kind)), wire.integer(2, strings.number(unit)))


def _samples(
    stacks: Stacks, values: list[Array], strings: _Strings, titles: list[str], used: set[int]
) -> Iterator[bytes]:
    label = strings.number("thread")
    labels = [wire.message(3, wire.integer(1, label), wire.integer(2, strings.number(title))) for title in titles]
    for at in range(0, len(stacks), _STACKS_AT_ONCE):
        some = np.arange(at, min(at + _STACKS_AT_ONCE, len(stacks)))
        columns = (stacks.thread[some].tolist(), stacks.frames(some), *(column[some].tolist() for column in values))
        for thread, frames, *numbers in zip(*columns, strict=True):
            used.update(frames)
            yield wire.message(
                2,
                wire.packed(1, [_location(frame) for frame in reversed(frames)]),
                wire.packed(2, numbers),
                labels[thread] if thread < len(labels) else b"",
            )


def _location(frame: int) -> int:
    return frame + 1  # 0 is not allowed, and stands for an event without a name


def _write_samples(out: BinaryIO, samples: Iterator[bytes], progress: Progress) -> None:
    waiting = bytearray()
    for sample in samples:
        waiting += sample
        if len(waiting) > _BYTES_AT_ONCE:
            out.write(waiting)
            waiting.clear()
            progress("stacks", -1)
    out.write(waiting)


def _frame(frame: int, name: str, strings: _Strings) -> bytes:
    """The location and the function of a name; both have its number."""
    number = _location(frame)
    python = _PYTHON_FRAME.fullmatch(name)
    function, file, line = (python["function"], python["file"], int(python["line"])) if python else (name or "?", "", 0)
    return wire.message(
        4, wire.integer(1, number), wire.message(4, wire.integer(1, number), wire.integer(2, line))
    ) + wire.message(
        5,
        wire.integer(1, number),
        wire.integer(2, strings.number(function)),
        wire.integer(3, strings.number(name or "?")),
        wire.integer(4, strings.number(file)),
        wire.integer(5, line),
    )
