"""Files that pass between the store and the workers that write and read it."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Final

from profd.errors import BadInput, Exhausted
from profd.kernel import identity
from profd.model.traits import is_recorder
from profd.segments.meta import FLOWS_FILE, LATE_FILE, META_FILE, TraceMeta

_FIXED_FILES: Final = frozenset({META_FILE, FLOWS_FILE, LATE_FILE})
# What the events are like: only the worker has seen them. All else is the daemon's to say.
_WORKERS_FIELDS: Final = (
    *("format", "start_ns", "end_ns", "events", "gpu_events", "bytes", "lost", "warnings", "anomalies"),
    *("truncated", "tracks", "top_level", "args", "flows", "late", "columns", "segments", "timings", "versions"),
    "clock_error_ns",
)

# What a trace that was exported elsewhere says of itself. Its importer's own trace may claim what it likes.
ORIGIN_FIELDS: Final = (
    *("source", "title", "host", "job", "pid", "rank", "window_start_ns", "window_end_ns", "options"),
    *("not_honoured", "cost", "traits", "run_times"),
)

log = logging.getLogger("profd.store")


def verified(staging: Path, meta: TraceMeta) -> TraceMeta:
    """The worker's meta, if the directory holds exactly what it says. BadInput otherwise."""
    allowed = _FIXED_FILES | {info.file for info in meta.segments}
    found = set()
    size = 0
    for entry in staging.iterdir():
        mode = entry.lstat()
        if entry.name not in allowed or not stat.S_ISREG(mode.st_mode) or mode.st_nlink != 1:
            raise BadInput(f"The worker left {entry.name!r}, which is no file of a trace: it was not stored.")
        found.add(entry.name)
        size += mode.st_size  # the description, too: it may have more in it than the events
    missing = {info.file for info in meta.segments} - found
    if missing:
        raise BadInput(f"The worker did not write {', '.join(sorted(missing))}: the trace was not stored.")
    meta.bytes = size
    return meta


def merged(written: TraceMeta, meta: TraceMeta) -> TraceMeta:
    """The daemon's meta, with what only the worker can know."""
    values = {name: getattr(meta, name) for name in TraceMeta.__struct_fields__}
    values.update({name: getattr(written, name) for name in _WORKERS_FIELDS})
    if meta.source == "import":
        values.update({name: getattr(written, name) for name in ORIGIN_FIELDS})
        values["waterfall"] = [*written.waterfall, *meta.waterfall]
        if not is_recorder(written.source):
            values["source"] = meta.source
    return TraceMeta(**values)


def hand_to_workers(trace: Path) -> None:
    """A trace from another time (imported offline, or under another worker user) becomes readable."""
    workers = identity.current()
    if workers.gid is None or trace.lstat().st_gid == workers.gid:
        return
    try:
        identity.make_readable(trace)
    except (OSError, BadInput, Exhausted) as error:
        log.error("workers cannot read a trace", extra={"trace": trace.name, "why": str(error)})
