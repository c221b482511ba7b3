"""The store of one host: a directory of immutable traces, bounded, safe against kill -9.

    traces/<id>/                whole traces; a directory is here, or it does not exist
    traces/.staging-<random>/   on its way in: what a worker has written at its gate (workers/gate.py)
    traces/.trash-<id>.<random> on its way out
    records/                    pins and shares, captures
    index/<id>/                 rollups of a trace; not needed
    catalog.sqlite              an index of all that

A trace enters and leaves by one rename, within `traces/` (`profd.disk.files.rename` says why). No reader sees a name
with a dot. Everything else (catalog row, record) follows the rename and is put right when the store is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from profd.disk.eviction import Evictable, Preview, victims
from profd.disk.files import disk, rename, sync, write_atomic
from profd.disk.space import Space, Urgency
from profd.errors import BadInput, Exhausted, NotFound
from profd.fairness.by_turns import ByTurns
from profd.kernel import identity
from profd.limits import (
    DISK_FREE_SHARE_MIN,
    DISK_UID_SHARE,
    EVICTIONS_NAMED_MAX,
    PINNED_SHARE_MAX,
    PINS_PER_UID_MAX,
    REMOVED_TOGETHER,
    SHARES_MAX,
    STORE_BYTES_DEFAULT,
    STORE_SHARE_DEFAULT,
    STORED_AT_ONCE,
    TRACES_PER_UID_MAX,
)
from profd.model.trace_ids import is_id, new_id
from profd.segments.meta import META_FILE, TraceMeta, joined, read_members, read_meta
from profd.store import going, rebuild
from profd.store.access import readers_of
from profd.store.cached import CachedRollups
from profd.store.catalog import CATALOG_FILE, NOBODYS_UID, Catalog, CatalogDamaged, TraceRecord
from profd.store.going import Going, Newcomer
from profd.store.handover import hand_to_workers, merged, verified
from profd.store.index import Index
from profd.store.lock import ReadersLock, StoreLock
from profd.store.records import Records

log = logging.getLogger("profd.store")


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """How large the store may grow: the smaller of `bytes` and `share` of its filesystem."""

    bytes: int = STORE_BYTES_DEFAULT
    share: float = STORE_SHARE_DEFAULT
    free_share_min: float = DISK_FREE_SHARE_MIN  # below it new captures are refused
    uid_share: float = DISK_UID_SHARE  # of what may be written, to the unfinished work of one user
    traces_per_uid: int = TRACES_PER_UID_MAX  # not root's, nor those of who runs the daemon


@dataclass(slots=True)
class StoreStatistics:
    """Counts since the store was opened, and what it holds now (bytes on disk)."""

    stored: int = 0
    deleted: int = 0
    evicted: int = 0
    evicted_bytes: int = 0
    traces: int = 0
    bytes: int = 0
    limit_bytes: int = 0


class Store:
    """Blocking, safe to call from several threads. One process holds it at a time (StoreLock).

    Raises Exhausted when the disk or the directory refuses, Unavailable when
    another process has it.
    """

    def __init__(
        self,
        root: Path,
        limits: StoreLimits | None = None,
        lock: StoreLock | None = None,
        cached: CachedRollups | None = None,
    ) -> None:
        """Open, or create, the store in `root`; sweeps leftovers and puts the catalog right.

        `cached`: where rollups are kept once it only reads; None: nowhere.
        """
        self._cached = cached or CachedRollups(None)
        self.root = root
        self.limits = limits or StoreLimits()
        self.on_evicted: Callable[[Evictable], None] = lambda trace: None
        self.space = Space(root, self.limits.free_share_min, self.limits.uid_share)
        self.traces = root / "traces"
        with disk(root, "Creating"):
            root.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._lock = lock or StoreLock(root, "daemon")
        self._only_reads = False
        self._readers: ReadersLock | None = None
        try:
            self._make_folder()
            self._marks = Records(root / "records" / "traces")
            self._counts = StoreStatistics()
            self._changing = threading.RLock()  # pins and shares are read, changed and written
            self._describing = threading.Lock()
            self.turn = ByTurns(STORED_AT_ONCE)  # for who calls `adopt`, in a thread; on a slow disk it takes seconds
            self._sweep()
            rebuild.name_uids(self._marks)
            self._catalog = self._open_catalog()
            self._index = Index(root, self._catalog.ids())
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Close the catalog and let go of the directory."""
        self._catalog.close()
        if self._readers is not None:
            self._readers.release()
        self._lock.release()

    def unlock(self) -> None:
        """Let others have the directory; this store only reads from now on."""
        self._only_reads = True
        with disk(self.traces, "Opening"):
            self._readers = ReadersLock(self.traces)
            self._readers.share()
        self._lock.release()

    # -- entering ------------------------------------------------------------

    def new_id(self) -> str:
        """An id no trace has."""
        while (self.traces / (trace := new_id(time.time_ns()))).exists():
            pass
        return trace

    def staging(self, urgency: Urgency = Urgency.NEW) -> Path:
        """A fresh, empty directory for a job to fill. Exhausted when the disk is nearly full for new things."""
        if urgency is Urgency.NEW:
            self.check_space()
        path = self.traces / f".staging-{secrets.token_hex(8)}"
        with disk(path, "Creating"):
            path.mkdir(mode=0o700)
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
            record = self._described(staging, meta)
            sync(staging)
            rename(staging, self.traces / meta.trace)
            sync(self.traces)
        try:
            self._catalog.put(record)
        except BaseException:
            # The caller is told that nothing was stored, so nothing may turn up at the next start.
            doomed = self._put_out([meta.trace])
            self._sync()
            _clear(doomed)
            raise
        self._counts.stored += 1
        return record

    def _described(self, staging: Path, meta: TraceMeta) -> TraceRecord:
        """Check and sync the files, and write down what they are. One at a time: it holds the worker's description."""
        with self._describing:
            written = verified(staging, read_members(staging))
            self._check_fits(int(written["bytes"]), meta.owner_uid)
            for entry in staging.iterdir():
                sync(entry)
            final = merged(written, meta)
            record = TraceRecord.of_members(meta.trace, final)
            write_atomic(staging / META_FILE, joined(final), 0o640)
            identity.let_read(staging / META_FILE)
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

    def _check_fits(self, size: int, uid: int) -> None:
        self._check_count(uid)
        limit = self.limit_bytes()
        _, total, pinned = self._catalog.totals()
        if size + pinned > limit:
            raise Exhausted(
                f"The trace has {size} bytes, pinned traces hold {pinned} of the {limit} that {self.root} may take: "
                "unpin or remove some, or raise the limit, then try again."
            )
        if total + size <= limit:
            return
        with self._catalog.looking() as db:
            goes = going.going(db, Newcomer(uid, size), limit).itself
            users = going.sums(db, uid).users
        if goes:
            raise Exhausted(
                f"The trace has {size} bytes, and {users} users share the {limit} that {self.root} may take, "
                f"{limit // users} each: record for a shorter time, or let somebody remove some (`profctl rm`), "
                "then try again."
            )

    def _check_count(self, uid: int) -> None:
        """The oldest goes for one more, unless all are pinned."""
        most = self.limits.traces_per_uid
        if self._unlimited(uid) or (count := self._catalog.count_of(uid)) < most:
            return
        if not self._catalog.oldest_loose(uid, 1):
            raise Exhausted(
                f"uid {uid} has {count} traces, all pinned, and {most} of one user may be in {self.root}: unpin or "
                "remove some (`profctl unpin`, `profctl rm`), then try again."
            )

    @staticmethod
    def _unlimited(uid: int) -> bool:
        return uid in (0, os.geteuid())

    def _beyond_count(self, more: int | None = None) -> list[Evictable]:
        """The oldest of users with more traces than they may have, if one of uid `more` came besides."""
        most = self.limits.traces_per_uid
        return [
            held
            for uid, count in self._catalog.counted(most).items()
            if not self._unlimited(uid)
            for held in self._catalog.oldest_loose(uid, count + (uid == more) - most)
        ]

    def preview(self, uid: int, size: int, *, all_seen: bool = False) -> Preview:
        """Traces that would go if a trace of this user and size were stored now; none does.

        The user sees own ones, or all.
        """
        limit, refusal = self.limit_bytes(), ""
        try:
            self._check_fits(size, uid)
        except Exhausted as error:
            refusal = str(error)
        with self._catalog.looking() as db:
            found = going.sums(db, uid)
            goes = Going([], 0, 0, False) if refusal else self._goes(db, Newcomer(uid, size), limit, all_seen)
        return Preview(
            limit=limit,
            stored=found.stored,
            share=limit // found.users,
            own=found.own,
            own_pinned=found.own_pinned,
            gone=goes.named,
            more=goes.seen - len(goes.named),
            others=goes.others,
            refusal=refusal,
        )

    def _goes(self, db: sqlite3.Connection, new: Newcomer, limit: int, all_seen: bool) -> Going:
        """First those beyond the count of a user, then those beyond the bytes."""
        first = self._beyond_count(new.uid)
        seen = [one.id for one in first if all_seen or one.uid == new.uid]
        without = [one.id for one in first]
        rest = going.going(db, new, limit, without=without, named=EVICTIONS_NAMED_MAX, all_seen=all_seen)
        named = [*seen, *rest.named][:EVICTIONS_NAMED_MAX]
        return Going(named, len(seen) + rest.seen, len(first) - len(seen) + rest.others, rest.itself)

    # -- asking --------------------------------------------------------------

    def get(self, trace: str) -> TraceRecord:
        """One trace by its whole id. NotFound."""
        record = self._catalog.get(trace) if is_id(trace) else None
        if record is None:
            raise NotFound(
                f"There is no trace {trace!r}: it was removed, had to go for newer ones, or never was; `profctl list` "
                "shows those there are."
            )
        return record

    def with_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> list[TraceRecord]:
        """The first traces by id whose id begins so, that this uid may read; None: all."""
        return self._catalog.with_prefix(prefix, reader, limit)

    def these(self, ids: Sequence[str]) -> list[TraceRecord]:
        """The records of these traces, in this order; none for a trace that there is not."""
        return self._catalog.these(ids)

    def newest_first(self, limit: int = -1) -> list[TraceRecord]:
        """The newest traces; -1 = all."""
        return self._catalog.newest_first(limit)

    def newest_of(self, uid: int, limit: int) -> list[TraceRecord]:
        """The newest traces that a user owns."""
        return self._catalog.newest_of(uid, limit)

    def newest_shared(self, uid: int, limit: int) -> list[TraceRecord]:
        """The newest traces of others that a user may read."""
        return self._catalog.newest_shared(uid, limit)

    def of_capture(self, capture: str) -> list[TraceRecord]:
        """The traces of one capture."""
        return self._catalog.of_capture(capture)

    def with_capture_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> list[TraceRecord]:
        """The same of captures whose id begins so, by capture and id."""
        return self._catalog.with_capture_prefix(prefix, reader, limit)

    def directory(self, trace: str) -> Path:
        """Where a trace lies, for a job's `trace_dir`."""
        return self.traces / trace

    def meta(self, trace: str) -> TraceMeta:
        """Everything a trace says of itself. NotFound, BadTrace."""
        self.get(trace)
        return read_meta(self.traces / trace)

    def statistics(self) -> StoreStatistics:
        """Counters for the metrics endpoint."""
        traces, total, _ = self._catalog.totals()
        counts = self._counts
        total += self._index.bytes
        return StoreStatistics(
            counts.stored,
            counts.deleted,
            counts.evicted,
            counts.evicted_bytes,
            traces,
            total,
            self.limit_bytes(),
        )

    # -- rollups -------------------------------------------------------------

    def index(self, trace: str) -> Path | None:
        """Where rollups of a trace lie, if it has any, for a job's `trace_index`."""
        cached = self._cached_folder(trace) if self._only_reads else None
        return cached if cached is not None and cached.is_dir() else self._index.directory(trace)

    def _cached_folder(self, trace: str) -> Path | None:
        """Of the reader's own: named by which file tells of the trace, and by what it says."""
        meta = self.directory(trace) / META_FILE
        try:
            seen, said = meta.stat(), hashlib.sha256(meta.read_bytes()).hexdigest()
        except OSError:
            return None
        return self._cached.directory(f"{seen.st_dev} {seen.st_ino} {seen.st_mtime_ns} {said}", trace)

    def rollups_staging(self, traces: Sequence[TraceRecord]) -> Path | None:
        """A directory for what a job works out of these; None where none of it would be kept.

        Nothing is kept of a job that has read traces of several users: one of these could speak for another.
        """
        if len({trace.owner_uid for trace in traces}) > 1:
            return None
        if self._only_reads:
            return self._cached.staging()
        try:
            self.check_space()
            return self._index.staging()
        except Exhausted:
            return None

    def take_rollups(self, staging: Path, traces: Sequence[str], names: Collection[str]) -> None:
        """Keep what a job has written there; see `Index.take`. Traces that have gone meanwhile have none."""
        if self._only_reads:
            folders = [folder for trace in traces if (folder := self._cached_folder(trace)) is not None]
            if len(folders) == len(traces):
                self._cached.take(staging, folders, names)
            return
        with self._changing:
            self._index.take(staging, traces, names)
            for trace in (one for one in set(traces) if self._catalog.get(one) is None):
                self._index.remove(trace)
            self._drop_rollups()

    def _drop_rollups(self) -> None:
        """They go before any trace does."""
        with self._changing:
            free = self.limit_bytes() - self._catalog.totals()[1]
            if self._index.bytes > free:
                self._index.drop(self._catalog.held(), free)

    # -- changing ------------------------------------------------------------

    def pin(self, trace: str, pinned: bool, *, limited: bool = True) -> TraceRecord:
        """Keep a trace from being evicted, or not any more. Exhausted above the limits of its owner and of all pins.

        The owner's limits do not hold where it is not `limited`.
        """
        with self._changing:
            record = self.get(trace)
            if pinned and not record.pinned:
                self._check_pin(record, limited)
            return self._mark(trace, pinned, record.readers)

    def _check_pin(self, record: TraceRecord, limited: bool) -> None:
        pins, users = self._catalog.pins()
        most = int(self.limit_bytes() * PINNED_SHARE_MAX)
        all_bytes = sum(trace.bytes for trace in pins)
        if all_bytes + record.bytes > most:
            raise Exhausted(
                f"All pinned traces hold {all_bytes} bytes, this one has {record.bytes}, and {most} may be pinned in "
                f"{self.root}: unpin or remove some (`profctl unpin`), then try again."
            )
        if not limited:
            return
        own = [trace.bytes for trace in pins if trace.uid == record.owner_uid]
        share = most // users
        if len(own) >= PINS_PER_UID_MAX or sum(own) + record.bytes > share:
            raise Exhausted(
                f"{record.owner or record.owner_uid} has pinned {len(own)} traces of {sum(own)} bytes, this one has "
                f"{record.bytes}, and {PINS_PER_UID_MAX} of {share} bytes may be pinned by one user now: unpin or "
                "remove some (`profctl unpin`), then try again."
            )

    def share(self, trace: str, names: Sequence[str]) -> TraceRecord:
        """Let these users read it, and nobody else beside its owner; "*" is everybody. BadInput for who is none."""
        if len(names) > SHARES_MAX:
            raise BadInput(f"A trace can be shared with {SHARES_MAX} names, not {len(names)}: use '*'.")
        readers = readers_of(names)
        with self._changing:
            return self._mark(trace, self.get(trace).pinned, readers)

    def _mark(self, trace: str, pinned: bool, readers: dict[str, int]) -> TraceRecord:
        self._marks.put(trace, {"pinned": pinned, "readers": readers})
        if not (self.traces / trace).exists():
            self._marks.remove(trace)
            raise NotFound(f"Trace {trace} has just been removed.")
        record = msgspec.structs.replace(self.get(trace), pinned=pinned, readers=readers)
        self._catalog.put(record)
        return record

    def delete(self, trace: str) -> None:
        """Remove a trace: gone for everybody at once. Readers that have it open finish. NotFound."""
        self._remove([self.get(trace).id])
        self._counts.deleted += 1

    def _remove(self, traces: Sequence[str]) -> None:
        """All at once: a slow disk takes a second for each sync, and others wait to enter a trace, or to pin one."""
        with self._changing:
            doomed = self._put_out(traces)
            try:
                self._sync()
                self._marks.remove(*traces)
            finally:  # should they come back with a power cut, so do their rows
                self._catalog.remove(traces)
                for trace in traces:
                    self._index.remove(trace)
        _clear(doomed)

    def _put_out(self, traces: Sequence[str]) -> list[Path]:
        """Nobody finds them any more; returned is where they lie. If the disk refuses one, all are left."""
        doomed: dict[Path, Path] = {}
        try:
            for trace in traces:
                there, away = self.traces / trace, self.traces / f".trash-{trace}.{secrets.token_hex(4)}"
                with disk(there, "Removing"), contextlib.suppress(FileNotFoundError):
                    rename(there, away)
                    doomed[there] = away
        except BaseException:
            for there, away in doomed.items():
                with contextlib.suppress(OSError):
                    rename(away, there)
            raise
        return [*doomed.values()]

    def _sync(self) -> None:
        with disk(self.traces, "Removing"):
            sync(self.traces)

    def enforce(self) -> list[str]:
        """Evict until no user has too many traces, and (`eviction.py`) the store is within its limit; returns the ids.

        Rollups go before traces.
        """
        self._drop_rollups()
        gone = self._evict(self._beyond_count())
        limit = self.limit_bytes()
        _, total, _ = self._catalog.totals()
        return gone + self._evict(victims(self._catalog.held(), limit) if total > limit else ())

    def _evict(self, traces: Iterable[Evictable]) -> list[str]:
        gone: list[str] = []
        left = iter(traces)
        while some := list(islice(left, REMOVED_TOGETHER)):
            self._remove([trace.id for trace in some])
            for trace in some:
                gone.append(trace.id)
                self._counts.evicted += 1
                self._counts.evicted_bytes += trace.bytes
                log.info("evicted a trace", extra={"trace": trace.id, "uid": trace.uid, "bytes": trace.bytes})
                self.on_evicted(trace)
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

    def refresh(self, trace: str) -> None:
        """Let the catalog say what the files of a trace do."""
        record = rebuild.record_of(self.traces, trace, self._marks)
        if record is not None and record != self._catalog.get(trace):
            self._catalog.put(record)

    # -- opening -------------------------------------------------------------

    def _make_folder(self) -> None:
        with disk(self.traces, "Creating"):
            self.traces.mkdir(mode=0o700, exist_ok=True)
            if self.traces.stat().st_mode & 0o077:  # of earlier versions; what workers need is at their gates now
                self.traces.chmod(0o700)

    def _sweep(self) -> None:
        with disk(self.traces, "Reading"):
            leftovers = [path for path in self.traces.iterdir() if path.name.startswith(".")]
        for path in (*leftovers, self.root / "staging", self.root / "trash"):  # the latter two are of earlier versions
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
                rename(path, path.with_name(f"{CATALOG_FILE}.damaged"))
            else:
                path.unlink(missing_ok=True)
            for suffix in ("-wal", "-shm"):
                path.with_name(CATALOG_FILE + suffix).unlink(missing_ok=True)

    def _reconcile(self, catalog: Catalog) -> None:
        """Rows for all directories, no others; marks only of traces there are."""
        with disk(self.traces, "Reading"):
            there = rebuild.trace_ids(self.traces)
        known = catalog.ids()
        catalog.remove(known - there)
        # What could not be read has no owner; a later profd had written it, perhaps, and this is that one again.
        unread = {record.id for record in catalog.newest_of(NOBODYS_UID, limit=-1) if record.damaged}
        for trace in (there - known) | (there & unread):
            record = rebuild.record_of(self.traces, trace, self._marks)
            if record is not None:
                catalog.put(record)
        self._marks.remove(*set(self._marks.names()) - there)
        for trace in there:
            hand_to_workers(self.traces / trace)
        self._refresh_marks(catalog)

    def _refresh_marks(self, catalog: Catalog) -> None:
        """A crash between a record and its row leaves the row behind."""
        for trace in self._marks.names():
            record = catalog.get(trace)
            marks = rebuild.read_marks(self._marks, trace)
            if record is not None and (record.pinned, record.readers) != marks:
                fresh = rebuild.record_of(self.traces, trace, self._marks)
                if fresh is not None:
                    catalog.put(fresh)


def _clear(doomed: Iterable[Path]) -> None:
    """What stays is swept at the next start."""
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)
