"""The store of one host: a directory of immutable traces, bounded, safe against kill -9.

    traces/<id>/       whole traces; a directory is here, or it does not exist
    staging/<random>/  where workers write, once moved to their gate (workers/gate.py); never seen by readers
    trash/             on its way out
    records/           pins and shares, captures
    catalog.sqlite     an index of all that

A trace enters and leaves `traces/` by one rename. Everything else (catalog row,
record) follows it and is put right when the store is opened.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from profd.errors import BadInput, Exhausted, NotFound
from profd.limits import DISK_FREE_SHARE_MIN, SHARES_MAX, STORE_BYTES_DEFAULT, STORE_SHARE_DEFAULT
from profd.store import rebuild
from profd.store.catalog import CATALOG_FILE, Catalog, CatalogDamaged, TraceRecord
from profd.store.files import disk, sync, write_atomic
from profd.store.handover import hand_to_workers, merged, verified
from profd.store.ids import is_id, new_id
from profd.store.lock import StoreLock
from profd.store.meta import META_FILE, TraceMeta, encode_struct, read_meta
from profd.store.records import Records
from profd.workers import identity

log = logging.getLogger("profd.store")


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How large the store may grow: the smaller of `bytes` and `share` of its filesystem."""

    bytes: int = STORE_BYTES_DEFAULT
    share: float = STORE_SHARE_DEFAULT
    free_share_min: float = DISK_FREE_SHARE_MIN  # below it new captures are refused


@dataclass(slots=True)
class StoreStatistics:
    """Counts since the store was opened, and what it holds now (bytes on disk)."""

    stored: int = 0
    deleted: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    traces: int = 0
    bytes: int = 0
    pinned_bytes: int = 0
    limit_bytes: int = 0


class Store:
    """Blocking, safe to call from several threads. One process holds it at a time (StoreLock).

    Raises Exhausted when the disk or the directory refuses, Unavailable when
    another process has it.
    """

    def __init__(self, root: Path, limits: StoreLimits | None = None, lock: StoreLock | None = None) -> None:
        """Open, or create, the store in `root`; sweeps leftovers and puts the catalog right."""
        self.root = root
        self.limits = limits or StoreLimits()
        self.traces = root / "traces"
        self._staging = root / "staging"
        self._trash = root / "trash"
        with disk(root, "Creating"):
            root.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._lock = lock or StoreLock(root, "daemon")
        try:
            self._make_folders()
            self._marks = Records(root / "records" / "traces")
            self._counts = StoreStatistics()
            self._changing = threading.RLock()  # pins and shares are read, changed and written
            self._sweep()
            self._catalog = self._open_catalog()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Close the catalog and let go of the directory."""
        self._catalog.close()
        self._lock.release()

    def unlock(self) -> None:
        """Let others have the directory; this store only reads from now on."""
        self._lock.release()

    # -- entering ------------------------------------------------------------

    def new_id(self) -> str:
        """An id no trace has."""
        while (self.traces / (trace := new_id(time.time_ns()))).exists():
            pass
        return trace

    def staging(self) -> Path:
        """A fresh, empty directory that a worker may write at its gate. Exhausted when the disk is nearly full."""
        self.check_space()
        path = self._staging / secrets.token_hex(8)
        with disk(path, "Creating"):
            path.mkdir(mode=0o700)
            identity.prepare_staging(path)
        return path

    def discard(self, staging: Path) -> None:
        """Remove a staging directory that will not become a trace; one that has is left alone."""
        shutil.rmtree(staging, ignore_errors=True)

    def adopt(self, staging: Path, meta: TraceMeta) -> TraceRecord:
        """Make a finished staging directory the trace `meta.trace`. It is durable when this returns.

        `meta` says who and what (id, owner, source, title …) and wins over what
        the worker wrote; what the events are like is taken from the worker's.
        Raises BadInput for files that no trace has, Exhausted when it does not
        fit; nothing is visible then, and `staging` is the caller's to discard.
        """
        if not is_id(meta.trace):
            raise ValueError(f"{meta.trace!r} is no trace id")
        with disk(staging, "Storing"):
            identity.make_readable(staging)
            written = verified(staging, read_meta(staging))
            self._check_fits(written.bytes)
            for entry in staging.iterdir():
                sync(entry)
            final = merged(written, meta)
            write_atomic(staging / META_FILE, encode_struct(final), 0o640)
            identity.make_readable(staging)
            sync(staging)
            staging.rename(self.traces / meta.trace)
            sync(self.traces)
        record = TraceRecord.of(meta.trace, final)
        try:
            self._catalog.put(record)
        except BaseException:
            # The caller is told that nothing was stored, so nothing may turn up at the next start.
            self._throw_away(meta.trace)
            raise
        self._counts.stored += 1
        return record

    def check_space(self) -> None:
        """Exhausted below the free share of the filesystem that captures must leave."""
        free = self.free_share()
        if free < self.limits.free_share_min:
            raise Exhausted(
                f"Only {free:.1%} of the filesystem of {self.root} is free, profd leaves "
                f"{self.limits.free_share_min:.0%}: free space (`profctl list`, `profctl rm`), then try again."
            )

    def free_share(self) -> float:
        """Free share of the store's filesystem, 0..1."""
        with disk(self.root, "Reading"):
            found = os.statvfs(self.root)
        return found.f_bavail / found.f_blocks if found.f_blocks else 1.0

    def free_bytes(self) -> int:
        """Free bytes of the store's filesystem."""
        with disk(self.root, "Reading"):
            found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def limit_bytes(self) -> int:
        """How large the store may be now."""
        with disk(self.root, "Reading"):
            found = os.statvfs(self.root)
        return min(self.limits.bytes, int(found.f_blocks * found.f_frsize * self.limits.share))

    def _check_fits(self, size: int) -> None:
        limit = self.limit_bytes()
        _, _, pinned = self._catalog.totals()
        if size + pinned > limit:
            raise Exhausted(
                f"The trace has {size} bytes, pinned traces hold {pinned} of the {limit} that {self.root} may take: "
                "unpin or remove some, or raise the limit, then try again."
            )

    # -- asking --------------------------------------------------------------

    def get(self, trace: str) -> TraceRecord:
        """One trace by its whole id. NotFound."""
        record = self._catalog.get(trace) if is_id(trace) else None
        if record is None:
            raise NotFound(f"There is no trace {trace!r}; `profctl list` shows those there are.")
        return record

    def with_prefix(self, prefix: str) -> list[TraceRecord]:
        """All traces whose id begins so."""
        return self._catalog.with_prefix(prefix)

    def newest_first(self, limit: int = -1) -> list[TraceRecord]:
        """The newest traces; -1 = all."""
        return self._catalog.newest_first(limit)

    def latest_of(self, uid: int) -> TraceRecord | None:
        """The newest trace that a user owns."""
        return self._catalog.latest_of(uid)

    def of_capture(self, capture: str) -> list[TraceRecord]:
        """The traces of one capture."""
        return self._catalog.of_capture(capture)

    def directory(self, trace: str) -> Path:
        """Where a trace lies, for a job's `trace_dir`."""
        return self.traces / trace

    def meta(self, trace: str) -> TraceMeta:
        """Everything a trace says of itself. NotFound, BadTrace."""
        self.get(trace)
        return read_meta(self.traces / trace)

    def statistics(self) -> StoreStatistics:
        """Counters for the metrics endpoint."""
        traces, total, pinned = self._catalog.totals()
        counts = self._counts
        return StoreStatistics(
            counts.stored,
            counts.deleted,
            counts.evicted,
            counts.evicted_bytes,
            traces,
            total,
            pinned,
            self.limit_bytes(),
        )

    # -- changing ------------------------------------------------------------

    def pin(self, trace: str, pinned: bool) -> TraceRecord:
        """Keep a trace from being evicted, or not any more."""
        with self._changing:
            return self._mark(trace, pinned, self.get(trace).shared_with)

    def share(self, trace: str, names: list[str]) -> TraceRecord:
        """Let these users read it, and nobody else beside its owner; "*" is everybody."""
        if len(names) > SHARES_MAX:
            raise BadInput(f"A trace can be shared with {SHARES_MAX} names, not {len(names)}: use '*'.")
        with self._changing:
            return self._mark(trace, self.get(trace).pinned, sorted(set(names)))

    def _mark(self, trace: str, pinned: bool, shared: list[str]) -> TraceRecord:
        self._marks.put(trace, {"pinned": pinned, "shared_with": shared})
        record = rebuild.record_of(self.traces, trace, self._marks)
        if record is None:
            self._marks.remove(trace)
            raise NotFound(f"Trace {trace} has just been removed.")
        self._catalog.put(record)
        return record

    def delete(self, trace: str) -> None:
        """Remove a trace: gone for everybody at once. Readers that have it open finish. NotFound."""
        self._remove(self.get(trace).id)
        self._counts.deleted += 1

    def _remove(self, trace: str) -> None:
        with self._changing:
            self._throw_away(trace)
            self._catalog.remove(trace)
            self._marks.remove(trace)

    def _throw_away(self, trace: str) -> None:
        doomed = self._trash / f"{trace}.{secrets.token_hex(4)}"
        with disk(self.traces / trace, "Removing"), contextlib.suppress(FileNotFoundError):
            (self.traces / trace).rename(doomed)
            sync(self.traces)
        shutil.rmtree(doomed, ignore_errors=True)  # what stays is swept at the next start

    def enforce(self) -> list[str]:
        """Evict the oldest unpinned traces until the store is within its limit; returns their ids."""
        limit = self.limit_bytes()
        _, total, _ = self._catalog.totals()
        gone: list[str] = []
        for trace, size in self._catalog.evictable():
            if total <= limit:
                break
            self._remove(trace)
            total -= size
            gone.append(trace)
            self._counts.evicted += 1
            self._counts.evicted_bytes += size
            log.info("evicted a trace", extra={"trace": trace, "bytes": size})
        return gone

    def rebuild(self) -> tuple[int, list[str]]:
        """Build the catalog from what lies on disk; (traces, sentences about damaged ones)."""
        with self._changing:
            self._catalog.close()
            self._put_aside(keep=False)
            self._catalog = Catalog(self.root / CATALOG_FILE)
            self._reconcile(self._catalog)
        records = self._catalog.newest_first()
        return len(records), [record.damaged for record in records if record.damaged]

    # -- opening -------------------------------------------------------------

    def _make_folders(self) -> None:
        for path in (self.traces, self._staging, self._trash):
            with disk(path, "Creating"):
                path.mkdir(mode=0o700, exist_ok=True)
                if path.stat().st_mode & 0o077:  # of earlier versions; what workers need is at their gates now
                    path.chmod(0o700)

    def _sweep(self) -> None:
        for folder in (self._staging, self._trash):
            with disk(folder, "Reading"):
                leftovers = list(folder.iterdir())
            for path in leftovers:
                shutil.rmtree(path, ignore_errors=True)
        self._marks.sweep()

    def _open_catalog(self) -> Catalog:
        try:
            catalog = Catalog(self.root / CATALOG_FILE)
        except CatalogDamaged as error:
            log.warning("building the catalog again", extra={"why": str(error)})
            self._put_aside(keep=True)
            catalog = Catalog(self.root / CATALOG_FILE)
        self._reconcile(catalog)
        return catalog

    def _put_aside(self, *, keep: bool) -> None:
        path = self.root / CATALOG_FILE
        with disk(path, "Removing"):
            if keep:
                path.rename(path.with_name(f"{CATALOG_FILE}.damaged"))
            else:
                path.unlink(missing_ok=True)
            for suffix in ("-wal", "-shm"):
                path.with_name(CATALOG_FILE + suffix).unlink(missing_ok=True)

    def _reconcile(self, catalog: Catalog) -> None:
        """Rows for all directories, no others; marks only of traces there are."""
        with disk(self.traces, "Reading"):
            there = rebuild.trace_ids(self.traces)
        known = catalog.ids()
        for trace in known - there:
            catalog.remove(trace)
        for trace in there - known:
            record = rebuild.record_of(self.traces, trace, self._marks)
            if record is not None:
                catalog.put(record)
        for trace in set(self._marks.names()) - there:
            self._marks.remove(trace)
        for trace in there:
            hand_to_workers(self.traces / trace)
        self._refresh_marks(catalog)

    def _refresh_marks(self, catalog: Catalog) -> None:
        """A crash between a record and its row leaves the row behind."""
        for trace in self._marks.names():
            record = catalog.get(trace)
            marks = rebuild.read_marks(self._marks, trace)
            if record is not None and (record.pinned, record.shared_with) != marks:
                fresh = rebuild.record_of(self.traces, trace, self._marks)
                if fresh is not None:
                    catalog.put(fresh)
