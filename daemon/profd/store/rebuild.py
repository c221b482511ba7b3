"""The catalog's rows, from the trace directories and the records beside them."""

from __future__ import annotations

from pathlib import Path

from profd.errors import BadInput, NotFound
from profd.store.catalog import TraceRecord
from profd.store.ids import is_id
from profd.store.meta import read_meta
from profd.store.records import Records


def trace_ids(traces: Path) -> set[str]:
    """The ids of all trace directories. Raises OSError."""
    return {entry.name for entry in traces.iterdir() if is_id(entry.name)}


def record_of(traces: Path, trace: str, marks: Records) -> TraceRecord | None:
    """The catalog row of one trace; None when it has gone meanwhile.

    A trace whose meta cannot be read gets a row, too: it takes space and must
    be removable. It has no owner but the admins.
    """
    pinned, shared = read_marks(marks, trace)
    try:
        return TraceRecord.of(trace, read_meta(traces / trace), pinned, shared)
    except NotFound as error:
        return None if not (traces / trace).exists() else _damaged(traces / trace, str(error))
    except BadInput as error:
        return _damaged(traces / trace, str(error))


def read_marks(marks: Records, trace: str) -> tuple[bool, list[str]]:
    """(pinned, shared with). A damaged record means pinned and private: nothing is lost or shown by it."""
    try:
        record = marks.get(trace)
    except NotFound:
        return False, []
    except BadInput:
        return True, []
    shared = record.get("shared_with", [])
    return bool(record.get("pinned")), [str(name) for name in shared] if isinstance(shared, list) else []


def _damaged(directory: Path, why: str) -> TraceRecord:
    size = sum(entry.lstat().st_size for entry in directory.iterdir())
    created = directory.lstat().st_mtime_ns
    return TraceRecord(id=directory.name, bytes=size, created_ns=created, damaged=why, title="(damaged)")
