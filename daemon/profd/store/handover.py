"""Files that pass between the store and the workers that write and read it."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Final

import msgspec

from profd.errors import BadInput, Exhausted
from profd.kernel import identity
from profd.model.capture import Phase
from profd.model.traits import is_recorder
from profd.segments.meta import (
    FLOWS_FILE,
    LATE_FILE,
    META_FILE,
    Members,
    SegmentInfo,
    TraceMeta,
    encode_json,
    members_of,
    part_of,
)

_FIXED_FILES: Final = frozenset({META_FILE, FLOWS_FILE, LATE_FILE})
# What the events are like: only the worker has seen them. All else is the daemon's to say.
_WORKERS_FIELDS: Final = (
    *("format", "start_ns", "end_ns", "events", "gpu_events", "bytes", "lost", "warnings", "anomalies"),
    *("truncated", "tracks", "top_level", "args", "flows", "late", "columns", "segments", "timings", "versions"),
    *("clock_error_ns", "remembered"),
)

# What a trace that was exported elsewhere says of itself. Its importer's own trace may claim what it likes.
ORIGIN_FIELDS: Final = (
    *("source", "title", "host", "job", "pid", "rank", "window_start_ns", "window_end_ns", "options"),
    *("not_honoured", "cost", "traits", "run_times", "resident", "remembered"),
)

log = logging.getLogger("profd.store")


class _Listed(msgspec.Struct):
    """What is asked of a worker's description before it is believed."""

    segments: list[SegmentInfo] = []
    source: str = ""
    waterfall: list[Phase] = []


def verified(staging: Path, written: Members) -> dict[str, bytes]:
    """The members of the worker's meta, if the directory holds exactly what it says. BadInput otherwise."""
    segments = part_of({"segments": written.get("segments", b"[]")}, _Listed, META_FILE).segments
    allowed = _FIXED_FILES | {info.file for info in segments}
    found = set()
    size = 0
    for entry in staging.iterdir():
        mode = entry.lstat()
        if entry.name not in allowed or not stat.S_ISREG(mode.st_mode) or mode.st_nlink != 1:
            raise BadInput(f"The worker left {entry.name!r}, which is no file of a trace: it was not stored.")
        found.add(entry.name)
        size += mode.st_size  # the description, too: it may have more in it than the events
    missing = {info.file for info in segments} - found
    if missing:
        raise BadInput(f"The worker did not write {', '.join(sorted(missing))}: the trace was not stored.")
    return {**written, "bytes": b"%d" % size}


def merged(written: Members, meta: TraceMeta) -> dict[str, bytes]:
    """The members of the daemon's meta, with those that only the worker can know."""
    values = members_of(encode_json(meta), "the daemon's own description")
    values.update({name: written[name] for name in _WORKERS_FIELDS if name in written})
    if meta.source == "import":
        said = part_of({name: written[name] for name in ("source", "waterfall") if name in written}, _Listed, "it")
        values.update({name: written[name] for name in ORIGIN_FIELDS if name in written})
        values["waterfall"] = msgspec.json.encode([*said.waterfall, *meta.waterfall])
        if not is_recorder(said.source):
            values["source"] = msgspec.json.encode(meta.source)
    return values


def hand_to_workers(trace: Path) -> None:
    """A trace from another time (imported offline, or under another worker user) becomes readable."""
    workers = identity.current()
    if workers.gid is None or trace.lstat().st_gid == workers.gid:
        return
    try:
        identity.make_readable(trace)
    except (OSError, BadInput, Exhausted) as error:
        log.error("workers cannot read a trace", extra={"trace": trace.name, "why": str(error)})
