"""A trace of an earlier format, written anew in today's."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader
from profd.segments.writer import TraceWriter


def rewrite(args: dict[str, Any], fds: list[int], progress: object) -> dict[str, Any]:
    """`rewritten` as a job. `args`: `trace_dir`, `staging`; the result is empty."""
    rewritten(Path(args["trace_dir"]), Path(args["staging"]))
    return {}


def rewritten(trace: Path, folder: Path) -> TraceMeta:
    """Write all of a trace directory into an empty directory, as many rows a segment as it has; what it says of itself.

    A segment at a time is in memory. Raises BadTrace where it cannot be read, Exhausted where the disk refuses.
    """
    reader = TraceReader(trace)
    with TraceWriter(folder) as writer:
        for table in reader.iterate():
            writer.write_segment(table)
        writer.write_flows(reader.flows(), reader.dictionaries)
        return writer.finish(copy(reader.meta))
