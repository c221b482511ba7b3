"""The catalog's rows, from the trace directories and the records beside them."""

from __future__ import annotations

import logging
from pathlib import Path

from profd.errors import BadInput, NotFound
from profd.model.trace_ids import is_id
from profd.segments.meta import read_members
from profd.store.access import readers_of
from profd.store.catalog import TraceRecord
from profd.store.records import Records

log = logging.getLogger("profd.store")


def trace_ids(traces: Path) -> set[str]:
    """The ids of all trace directories. Raises OSError."""
    return {entry.name for entry in traces.iterdir() if is_id(entry.name)}


def record_of(traces: Path, trace: str, marks: Records) -> TraceRecord | None:
    """The catalog row of one trace; None when it has gone meanwhile.

    A trace whose meta cannot be read gets a row, too: it takes space and must
    be removable. It has no owner but the admins.
    """
    pinned, readers = read_marks(marks, trace)
    try:
        return TraceRecord.of_members(trace, read_members(traces / trace), pinned, readers)
    except NotFound as error:
        return None if not (traces / trace).exists() else _damaged(traces / trace, str(error), pinned)
    except BadInput as error:
        return _damaged(traces / trace, str(error), pinned)


def read_marks(marks: Records, trace: str) -> tuple[bool, dict[str, int]]:
    """(pinned, readers). A damaged record means pinned and private: nothing is lost or shown by it."""
    try:
        record = marks.get(trace)
    except NotFound:
        return False, {}
    except BadInput:
        return True, {}
    readers = record.get("readers", {})
    known = isinstance(readers, dict) and all(type(uid) is int for uid in readers.values())
    return bool(record.get("pinned")), readers if known else {}


def name_uids(marks: Records) -> None:
    """Once for each record that is from before readers were uids: they are those that the names have now."""
    for trace, record in marks.items():
        names = record.pop("shared_with", None)
        if isinstance(names, list):
            marks.put(trace, {**record, "readers": _known_readers(trace, names)})


def _known_readers(trace: str, names: list[object]) -> dict[str, int]:
    readers: dict[str, int] = {}
    for name in map(str, names):
        try:
            readers |= readers_of([name])
        except BadInput as error:
            log.warning("a share has ended", extra={"trace": trace, "why": str(error)})
    return readers


def _damaged(directory: Path, why: str, pinned: bool) -> TraceRecord:
    size = sum(entry.lstat().st_size for entry in directory.iterdir()) if directory.is_dir() else 0
    created = directory.lstat().st_mtime_ns
    return TraceRecord(id=directory.name, bytes=size, created_ns=created, pinned=pinned, damaged=why, title="(damaged)")
