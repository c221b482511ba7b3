"""What was kept of the traces of a capture, in one file without a name: no worker needs a way to a thousand places.

Making and removing these took most of the time of an answer by rollups. What is packed is what their gate would have:
`meta.json` and the rollups of the traces that the job is about. Copied and not read: the daemon parses none of it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from profd.limits import PACKED_BYTES_MAX
from profd.segments.meta import META_FILE

ASKS: Final = "asks"  # in the place of `staging`: the job says whether it needs one
KEPT_ONLY: Final = "kept_only"  # the same: it answers by what was kept, or says that it needs the events
PACKED: Final = "packed"  # what a job calls the layouts, by the arguments that name the traces
Layout = list[list[tuple[str, int]]]
"""Of each trace its files, as (name, bytes): one behind the other, and trace behind trace."""

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class _TooMuch(Exception):
    pass


def pack(traces: Sequence[Path], indexes: Sequence[Path], names: Sequence[str], out: int) -> Layout | None:
    """Append the `meta.json` of each trace and its rollups of these names to `out`. Blocking.

    None where a trace has none of them, or has gone, and where `out` would have more than PACKED_BYTES_MAX.
    """
    layout: Layout = []
    try:
        for trace, index in zip(traces, indexes, strict=True):
            kept = [(name, size) for name in names if (size := _append(index / name, out)) is not None]
            said = _append(trace / META_FILE, out)
            if not kept or said is None:
                return None
            layout.append([*kept, (META_FILE, said)])
    except (OSError, _TooMuch):  # whoever reads the files themselves will say what is wrong with them
        return None
    return layout


def _append(path: Path, out: int) -> int | None:
    """How many bytes; None where there is no such file."""
    try:
        file = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    try:
        size = left = os.fstat(file).st_size
        if os.lseek(out, 0, os.SEEK_CUR) + size > PACKED_BYTES_MAX:
            raise _TooMuch
        while left:
            sent = os.sendfile(out, file, None, left)
            if not sent:
                raise _TooMuch  # it was cut short meanwhile
            left -= sent
        return size
    finally:
        os.close(file)


def unpacked(file: int, layouts: Sequence[Layout]) -> Iterator[list[dict[str, memoryview]]]:
    """Of each layout in turn the files of its traces, by name. They hold the mapping for as long as they are there."""
    size = sum(size for layout in layouts for files in layout for _, size in files)
    whole = memoryview(mmap.mmap(file, size, prot=mmap.PROT_READ) if size else b"")
    at = 0
    for layout in layouts:
        traces = []
        for files in layout:
            held = {}
            for name, length in files:
                held[name] = whole[at : at + length]
                at += length
            traces.append(held)
        yield traces
