"""The job `export` of the worker, and the formats it knows."""

from __future__ import annotations

import gzip
import importlib
import os
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from profd.errors import BadInput
from profd.store.reader import TraceReader, Window
from profd.workers.jobs import Progress

# name -> "module:function": def write(reader, out, window, progress) -> int (events written), where
# `window` is [from, to) in Unix ns or None for all of the trace. Those in _TAKE_MIN_DURATION have
# `min_duration_ns` as a keyword too.
FORMATS: Final[dict[str, str]] = {
    "chrome": "profd.export.chrome:write",
    "folded": "profd.export.folded:write",
    "speedscope": "profd.export.speedscope:write",
}
_TAKE_MIN_DURATION: Final = frozenset({"chrome"})
_FAR_FUTURE_NS: Final = (1 << 63) - 1


def export(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """See `workers/jobs.py`: the trace in another format to `fds[0]`, `{"events": n}`.

    Raises BadInput for an unknown format, an empty window, or a minimum duration
    that the format cannot serve.
    """
    name = str(args.get("format") or "chrome")
    if name not in FORMATS:
        raise BadInput(f'there is no export format "{name}"; known are {", ".join(FORMATS)}')
    options: dict[str, Any] = {}
    if minimum := int(args.get("min_duration_ns") or 0):
        if name not in _TAKE_MIN_DURATION or minimum < 0:
            raise BadInput(f"--min-duration cannot be {minimum} ns with the format {name}; leave it out")
        options["min_duration_ns"] = minimum
    module, _, function = FORMATS[name].partition(":")
    write = getattr(importlib.import_module(module), function)
    reader = TraceReader(Path(args["trace_dir"]))
    window = _window(reader, args.get("from_ns"), args.get("to_ns"))
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        if not args.get("gzip"):
            return {"events": write(reader, out, window, progress, **options)}
        # No name and no time in the header: the same trace gives the same bytes.
        with gzip.GzipFile("", "wb", compresslevel=3, fileobj=out, mtime=0) as packed:
            return {"events": write(reader, cast(BinaryIO, packed), window, progress, **options)}


def _window(reader: TraceReader, from_ns: int | None, to_ns: int | None) -> Window | None:
    """A window relative to the first event as Unix ns."""
    if from_ns is None and to_ns is None:
        return None
    low, high = from_ns or 0, to_ns
    if high is not None and high <= low:
        raise BadInput(f"the window {low}..{high} ns is empty; its end must be after its start")
    first = reader.meta.start_ns or 0
    return first + low, _FAR_FUTURE_NS if high is None else first + high
