"""The catalog: an SQLite index of the traces, so that listing reads no trace.

What a user is shown costs what this user may see, however many traces others have: the records of these alone are
decoded, and `readers` has a row for each trace and uid that it is shared with. The catalog holds nothing that the trace
directories and the records do not; when it is damaged it is put aside and built again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from profd.disk.eviction import Evictable
from profd.disk.files import disk
from profd.errors import Exhausted, ProfdError, Unavailable
from profd.model.capture import Loss
from profd.model.decodable import decodable
from profd.segments.meta import Members, TraceMeta, decode_struct, encode_json, part_of

CATALOG_FILE: Final = "catalog.sqlite"
SCHEMA_VERSION: Final = 2
EVERYBODY_UID: Final = -1  # nobody's; what stands for "*" where uids are kept
NOBODYS_UID: Final = -1  # who owns a trace that cannot be read
_BUSY_MILLISECONDS: Final = 5_000
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS traces (
    id TEXT PRIMARY KEY, owner_uid INTEGER NOT NULL, capture TEXT NOT NULL, created_ns INTEGER NOT NULL,
    bytes INTEGER NOT NULL, pinned INTEGER NOT NULL, record BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS traces_by_age ON traces (created_ns);
CREATE INDEX IF NOT EXISTS traces_by_capture ON traces (capture);
DROP INDEX IF EXISTS traces_by_owner;
CREATE INDEX IF NOT EXISTS traces_by_owner_age ON traces (owner_uid, created_ns, id, bytes, pinned);
CREATE INDEX IF NOT EXISTS traces_by_owner_capture ON traces (owner_uid, capture);
CREATE INDEX IF NOT EXISTS traces_pinned ON traces (owner_uid, bytes) WHERE pinned;
CREATE TABLE IF NOT EXISTS readers (
    uid INTEGER NOT NULL, created_ns INTEGER NOT NULL, trace TEXT NOT NULL, owner_uid INTEGER NOT NULL,
    PRIMARY KEY (uid, created_ns, trace)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS readers_by_trace ON readers (trace, uid);
"""
_READABLE: Final = """(owner_uid = :reader OR EXISTS (
    SELECT 1 FROM readers WHERE readers.trace = traces.id AND readers.uid IN (:reader, -1)))"""
# Of a beginning, those that a user may read: others' rows are not looked at. "+" keeps SQLite from the other index.
_BEGINNING: Final = """WHERE id IN (
    SELECT id FROM traces INDEXED BY {index}
        WHERE owner_uid = :reader AND {column} != '' AND +{column} >= :prefix AND +{column} < :behind
    UNION SELECT trace FROM readers CROSS JOIN traces ON id = trace
        WHERE uid IN (:reader, -1) AND {column} != '' AND +{column} >= :prefix AND +{column} < :behind)"""
_AT_ONCE: Final = 256  # records that are decoded whole
_BEHIND: Final = "\U0010ffff"  # sorts behind whatever follows a prefix


class CatalogDamaged(ProfdError):
    """The file is no database, or not one of ours: it has to be built again."""


@decodable
class TraceRecord(msgspec.Struct, kw_only=True, frozen=True):
    """A trace in a list: the light part of its meta, and its pin and shares. None: not known.

    `readers` are uids by the names that they were given by.
    """

    id: str
    capture: str = ""
    owner: str = ""
    owner_uid: int = NOBODYS_UID
    source: str = ""
    title: str = ""
    created_ns: int = 0
    start_ns: int | None = None
    end_ns: int | None = None
    events: int = 0
    gpu_events: int | None = None
    bytes: int = 0
    pinned: bool = False
    readers: dict[str, int] = {}
    lost: list[Loss] = []
    host: str = ""
    pid: int | None = None
    start_ticks: int | None = None
    rank: int | None = None
    truncated: str = ""
    damaged: str = ""  # a sentence when meta.json cannot be read; such a trace can only be removed

    def as_json(self) -> dict[str, Any]:
        """The trace in `profctl list --json`."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        for internal in ("start_ticks", "truncated"):
            del values[internal]
        values["shared_with"] = list(values.pop("readers"))
        return values

    @classmethod
    def of(
        cls, trace: str, meta: TraceMeta, pinned: bool = False, readers: dict[str, int] | None = None
    ) -> TraceRecord:
        """The record of a trace."""
        same = {name: getattr(meta, name) for name in _SAME}
        return cls(id=trace, pinned=pinned, readers=readers or {}, **same)

    @classmethod
    def of_members(
        cls,
        trace: str,
        members: Members,
        pinned: bool = False,
        readers: dict[str, int] | None = None,
    ) -> TraceRecord:
        """The same of the members of a `meta.json`. BadTrace where they are no trace's."""
        same = {name: members[name] for name in _SAME if name in members}
        record = part_of({**same, "id": b'"%b"' % trace.encode()}, cls, f"the description of trace {trace}")
        return msgspec.structs.replace(record, pinned=pinned, readers=readers or {})


_SAME: Final = tuple(
    name for name in TraceRecord.__struct_fields__ if name not in ("id", "pinned", "readers", "damaged")
)


def _beginning(
    column: str, index: str, prefix: str, reader: int | None, limit: int
) -> tuple[str, Mapping[str, str | int | None]]:
    """The rest of a query, and its values."""
    clause = f"WHERE {column} != '' AND {column} >= :prefix AND {column} < :behind"
    if reader is not None:
        clause = _BEGINNING.format(column=column, index=index)
    values = {"prefix": prefix, "behind": prefix + _BEHIND, "reader": reader, "limit": limit}
    return f"{clause} ORDER BY {column}, id LIMIT :limit", values


def _lightened(record: TraceRecord, reader: int | None) -> TraceRecord:
    readers = {name: uid for name, uid in record.readers.items() if uid in (reader, EVERYBODY_UID)}
    return msgspec.structs.replace(record, readers=readers, lost=[], title="", host="", truncated="")


class Catalog:
    """Safe to use from several threads; every call is one short transaction and blocks.

    Raises Unavailable when somebody else keeps it locked, Exhausted when the
    disk refuses a write, CatalogDamaged when it must be built again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._totals: tuple[int, int, int] | None = None
        # Titles are command lines: not for everybody. SQLite gives its other files the same mode.
        with disk(path, "Opening"):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        with self._errors():
            self._db = sqlite3.connect(path, timeout=_BUSY_MILLISECONDS / 1000, check_same_thread=False)
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def _prepare(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise CatalogDamaged(f"{self._path} has schema {version}, this profd knows {SCHEMA_VERSION}")
        self._db.execute("PRAGMA journal_mode=WAL")
        # The trace directories are the truth: losing the last rows to a power cut costs a scan.
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        if version == 1:
            for record in self._records("", {}):
                self._put_readers(self._db, record)
            self._db.commit()
        self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise CatalogDamaged(f"{self._path} is damaged: {found}")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()

    def put(self, record: TraceRecord) -> None:
        """Add or replace a trace."""
        row = (
            record.id,
            record.owner_uid,
            record.capture,
            record.created_ns,
            record.bytes,
            record.pinned,
            encode_json(record),
        )
        with self._transaction() as db:
            self._totals = None
            db.execute("INSERT OR REPLACE INTO traces VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._put_readers(db, record)

    @staticmethod
    def _put_readers(db: sqlite3.Connection, record: TraceRecord) -> None:
        uids = {*record.readers.values()} - {record.owner_uid}
        rows = [(uid, record.created_ns, record.id, record.owner_uid) for uid in uids]
        db.execute("DELETE FROM readers WHERE trace = ?", (record.id,))
        db.executemany("INSERT INTO readers VALUES (?, ?, ?, ?)", rows)

    def remove(self, traces: Collection[str]) -> None:
        """Forget these; one that is not there is no error."""
        ids = [(trace,) for trace in traces]
        with self._transaction() as db:
            self._totals = None
            db.executemany("DELETE FROM traces WHERE id = ?", ids)
            db.executemany("DELETE FROM readers WHERE trace = ?", ids)

    def get(self, trace: str) -> TraceRecord | None:
        """One trace, or None."""
        found = self._records("WHERE id = :id", {"id": trace})
        return found[0] if found else None

    def with_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> list[TraceRecord]:
        """The first traces by id whose id begins so, that this uid may read; None: all."""
        return self._records(*_beginning("id", "traces_by_owner_age", prefix, reader, limit))

    def of_capture(self, capture: str) -> list[TraceRecord]:
        """The traces of one capture."""
        return self._records("WHERE capture = :capture ORDER BY id", {"capture": capture})

    def with_capture_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> list[TraceRecord]:
        """The same of captures whose id begins so, or of the one that has this id; by capture and id.

        They say what questions about thousands need: no texts, no losses, and of their readers this one alone.
        """
        ids = self._of_capture_prefix(prefix, reader, limit)
        return [one for at in range(0, len(ids), _AT_ONCE) for one in self._light(ids[at : at + _AT_ONCE], reader)]

    def _of_capture_prefix(self, prefix: str, reader: int | None, limit: int) -> list[str]:
        if reader is not None and prefix:
            whole = f"WHERE capture = :prefix AND {_READABLE} ORDER BY id LIMIT :limit"
            if found := self._ids(whole, {"prefix": prefix, "reader": reader, "limit": limit}):
                return found
        return self._ids(*_beginning("capture", "traces_by_owner_capture", prefix, reader, limit))

    def _light(self, ids: Sequence[str], reader: int | None) -> list[TraceRecord]:
        """These, in this order, but for what has gone; whole they can be 70 kB each."""
        clause = f"WHERE id IN ({', '.join('?' * len(ids))}) ORDER BY capture, id"
        return [_lightened(one, reader) for one in self._records(clause, ids)]

    def these(self, ids: Sequence[str]) -> list[TraceRecord]:
        """The records of these traces, in this order; none for a trace that there is not."""
        found: dict[str, TraceRecord] = {}
        for at in range(0, len(ids), _AT_ONCE):
            some = ids[at : at + _AT_ONCE]
            found.update((one.id, one) for one in self._records(f"WHERE id IN ({', '.join('?' * len(some))})", some))
        return [found[trace] for trace in ids if trace in found]

    def newest_first(self, limit: int = -1) -> list[TraceRecord]:
        """The newest traces."""
        return self._records("ORDER BY created_ns DESC, id DESC LIMIT :limit", {"limit": limit})

    def newest_of(self, uid: int, limit: int) -> list[TraceRecord]:
        """The newest traces that a user owns."""
        clause = "WHERE owner_uid = :uid ORDER BY created_ns DESC, id DESC LIMIT :limit"
        return self._records(clause, {"uid": uid, "limit": limit})

    def newest_shared(self, uid: int, limit: int) -> list[TraceRecord]:
        """The newest traces of others that a user may read, as one of their readers or as everybody."""
        clause = """JOIN (
            SELECT trace FROM readers WHERE uid = :as AND owner_uid != :uid
            ORDER BY created_ns DESC, trace DESC LIMIT :limit) ON trace = id"""
        found = {}
        for reader in (uid, EVERYBODY_UID):
            records = self._records(clause, {"as": reader, "uid": uid, "limit": limit})
            found.update({record.id: record for record in records})
        newest = sorted(found.values(), key=lambda record: (record.created_ns, record.id), reverse=True)
        return newest[:limit]

    def held(self) -> list[Evictable]:
        """All traces, oldest first, as eviction sees them."""
        with self._transaction() as db:
            query = "SELECT id, owner_uid, bytes, pinned FROM traces ORDER BY created_ns, id"
            return [Evictable(trace, uid, size, bool(pinned)) for trace, uid, size, pinned in db.execute(query)]

    def pins(self) -> tuple[list[Evictable], int]:
        """The pinned traces, and how many users have traces."""
        with self._transaction() as db:
            rows = db.execute("SELECT id, owner_uid, bytes, pinned FROM traces WHERE pinned").fetchall()
            users = db.execute("SELECT count(DISTINCT owner_uid) FROM traces").fetchone()[0]
        return [Evictable(trace, uid, size, bool(pinned)) for trace, uid, size, pinned in rows], users

    def totals(self) -> tuple[int, int, int]:
        """(traces, bytes, bytes of pinned ones). Asked at every scrape, counted after changes only."""
        known = self._totals
        if known is not None:
            return known
        with self._transaction() as db:
            query = "SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(bytes * pinned), 0) FROM traces"
            count, total, pinned = db.execute(query).fetchone()
            self._totals = count, total, pinned
            return count, total, pinned

    def _ids(self, clause: str, values: Mapping[str, Any]) -> list[str]:
        with self._transaction() as db:
            return [row[0] for row in db.execute(f"SELECT id FROM traces {clause}", values)]  # noqa: S608 - as below

    def ids(self) -> set[str]:
        """All ids."""
        with self._transaction() as db:
            return {row[0] for row in db.execute("SELECT id FROM traces")}

    def counted(self, least: int) -> dict[int, int]:
        """The traces of each user who has so many, or more."""
        with self._transaction() as db:
            query = "SELECT owner_uid, count(*) FROM traces GROUP BY owner_uid HAVING count(*) >= ?"
            return dict(db.execute(query, (least,)).fetchall())

    def count_of(self, uid: int) -> int:
        """The traces of one user."""
        with self._transaction() as db:
            return int(db.execute("SELECT count(*) FROM traces WHERE owner_uid = ?", (uid,)).fetchone()[0])

    def oldest_loose(self, uid: int, count: int) -> list[Evictable]:
        """So many of a user's traces that are not pinned, the oldest first."""
        with self._transaction() as db:
            query = """SELECT id, owner_uid, bytes FROM traces WHERE owner_uid = ? AND NOT pinned
                ORDER BY created_ns, id LIMIT ?"""
            return [Evictable(*row) for row in db.execute(query, (uid, count))]

    def _records(self, clause: str, values: Mapping[str, Any] | Sequence[str]) -> list[TraceRecord]:
        with self._transaction() as db:
            rows = db.execute(f"SELECT record FROM traces {clause}", values).fetchall()  # noqa: S608 - our own text
        try:
            return [decode_struct(row[0], TraceRecord) for row in rows]
        except ValueError as error:
            raise CatalogDamaged(f"{self._path} holds a damaged row: {error}") from error

    @contextlib.contextmanager
    def looking(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own, for what takes long: nobody waits for it."""
        with self._errors(), contextlib.closing(sqlite3.connect(self._path, check_same_thread=False)) as db:
            db.execute("PRAGMA query_only=1")
            yield db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors(), self._db:
            yield self._db

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _translated(self, error: sqlite3.Error) -> ProfdError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extension
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(f"{self._path} is locked by another program: close it (`fuser {self._path}`).")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return CatalogDamaged(f"{self._path} is damaged ({error}): restart profd, it builds it again.")
        return Exhausted(
            f"{self._path} cannot be used ({error}): check free space and write access there, then try again."
        )
