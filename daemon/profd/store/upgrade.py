"""Traces of earlier formats, written anew in today's: `profctl store upgrade`. Of a store that no daemon has."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profd.disk.files import disk, exchange, sync
from profd.errors import BadInput, BadTrace, JobFailed, NotFound, Unavailable
from profd.kernel import identity
from profd.segments.meta import FORMAT, read_meta
from profd.store import rebuild
from profd.store.lock import OFFLINE_WAIT_SECONDS, ReadersLock
from profd.store.store import Store

Rewrite = Callable[[Path, Path], object]
"""Writes the trace of a directory into an empty one; `segments.rewrite.rewritten`, which needs the engine."""


_WHOSE: Final = ("trace", "capture", "owner_uid", "owner", "source", "created_ns", "host", "pid", "rank", "job")


@dataclass(slots=True)
class Upgraded:
    """What became of the traces of a store."""

    anew: list[str] = field(default_factory=list)
    others: int = 0  # of today's format before
    damaged: list[str] = field(default_factory=list)  # sentences; they stay as they were


def upgrade(store: Store, rewrite: Rewrite, wait_seconds: float = OFFLINE_WAIT_SECONDS) -> Upgraded:
    """Write all traces of earlier formats anew.

    Each is the old one until the new one is durable, and what has been done stays done, whatever ends this. Readers
    that have the store open end first: Unavailable where they take longer than the wait. Exhausted when the disk
    refuses.
    """
    with disk(store.traces, "Opening"):
        readers = ReadersLock(store.traces)
    try:
        readers.exclude(wait_seconds)
        return _all(store, rewrite)
    finally:
        readers.release()


def _all(store: Store, rewrite: Rewrite) -> Upgraded:
    with disk(store.traces, "Reading"):
        traces = sorted(rebuild.trace_ids(store.traces))
    done = Upgraded()
    for trace in traces:
        there = store.directory(trace)
        try:
            if read_meta(there).format < FORMAT:
                _one(store, there, rewrite)
                done.anew.append(trace)
            else:
                done.others += 1
        except (BadInput, NotFound, JobFailed) as error:
            done.damaged.append(f"trace {trace}: {error}")
        else:
            store.refresh(trace)  # also of one whose upgrade was killed before it came to this
    return done


def _one(store: Store, there: Path, rewrite: Rewrite) -> None:
    staging = store.staging()
    try:
        rewrite(there, staging)
        with disk(staging, "Storing"):
            identity.make_readable(staging)
            _check_whose(there, staging)
            for entry in staging.iterdir():
                sync(entry)
            sync(staging)
            _swap(staging, there)
            sync(store.traces)
    finally:
        store.discard(staging)  # the old one by now, or what is unfinished of the new one


def _check_whose(before: Path, after: Path) -> None:
    """A trace that has taken its worker over may not become another user's, nor another trace."""
    old, new = read_meta(before), read_meta(after)
    for name in _WHOSE:
        if getattr(old, name) != getattr(new, name):
            raise BadTrace(f"its {name} would be another")


def _swap(staging: Path, there: Path) -> None:
    try:
        exchange(staging, there)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        raise Unavailable(
            f"The filesystem of {there.parent} cannot exchange two directories: export traces with `-f bundle`, and "
            "import them."
        ) from error
