"""SQLite files from strangers: tables by name, rows in order, nothing else.

A database file is a program of sorts: views, virtual tables, generated columns
and triggers run when it is read. Here only plain columns of plain tables can be
named, everything else is denied by the authorizer, no extension can be loaded,
and the time is limited. The file is read from a private copy, so that nobody
changes it under way and no journal or WAL beside it is looked at.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from profd import limits
from profd.disk.files import disk
from profd.errors import BadTrace

MAGIC: Final = b"SQLite format 3\x00"
ROWS_AT_ONCE: Final = 1 << 14
_HEADER_BYTES: Final = 100
_STEPS_BETWEEN_CHECKS: Final = 10_000
_COPY_BYTES: Final = 1 << 20
# SQLite quotes damaged text in its messages, which the sqlite3 module then cannot decode.
_ERRORS: Final = (sqlite3.Error, UnicodeError)


class Damaged(Exception):
    """A table ends here: the file is corrupt or cut off, or the time is up. str() says which."""


class SqliteFile:
    """An open database. Close it.

    `tables` are the plain tables and their plain columns. `cut_off`: the file is
    shorter than its header says, and reading goes as far as it can.
    """

    def __init__(self, file: BinaryIO, scratch: Path | None, seconds: float = limits.SQLITE_SECONDS) -> None:
        """Raises BadTrace when it is no database or its schema is unreadable, Exhausted when the disk is full."""
        self._deadline = time.monotonic() + seconds
        self.tables: dict[str, tuple[str, ...]] = {}
        with disk(scratch or Path(tempfile.gettempdir())):
            handle, path = tempfile.mkstemp(prefix="sqlite-", dir=scratch)
        try:
            with disk(Path(path)), open(handle, "wb") as copy:
                self.cut_off = _copy(file, copy)
            address = urllib.parse.quote(path)
            self._connection = sqlite3.connect(
                f"file:{address}?mode=ro&immutable=1", uri=True, isolation_level=None, cached_statements=0
            )
        except sqlite3.Error as error:
            raise BadTrace(f"the SQLite file cannot be opened: {error}") from error
        finally:
            os.unlink(path)
        try:
            self._confine()
            self._read_schema()
        except _ERRORS as error:
            self._connection.close()
            raise BadTrace(f"the SQLite file is corrupt: {error}; copy it again") from error

    def close(self) -> None:
        """The copy is gone with it."""
        self._connection.close()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        """Yield lists of rows in the order of their row ids; text comes as bytes.

        Table and columns must be in `tables`. Raises Damaged where no more can be read.
        """
        names = ", ".join(_quoted(column) for column in columns)
        last = None
        with contextlib.closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(f"SELECT rowid, {names} FROM main.{_quoted(table)} NOT INDEXED")  # noqa: S608 - quoted
                while rows := cursor.fetchmany(ROWS_AT_ONCE):
                    # A tree whose pages form a ring would be walked for ever.
                    ids = [row[0] for row in rows] if last is None else [last, *(row[0] for row in rows)]
                    if not all(a < b for a, b in itertools.pairwise(ids)):
                        raise Damaged("its rows are out of order")
                    last = ids[-1]
                    yield [row[1:] for row in rows]
            except (*_ERRORS, TypeError) as error:
                raise Damaged("reading took too long" if self._late() else str(error)) from error

    def _confine(self) -> None:
        connection = self._connection
        connection.text_factory = bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.EVENT_BYTES_MAX)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
        connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        connection.set_progress_handler(self._late, _STEPS_BETWEEN_CHECKS)
        connection.set_authorizer(_may)

    def _late(self) -> bool:
        return time.monotonic() > self._deadline

    def _read_schema(self) -> None:
        found = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        for name, sql in found.fetchmany(limits.SQLITE_TABLES_MAX):
            if not isinstance(name, bytes) or not isinstance(sql, bytes) or sql.upper().startswith(b"CREATE VIRTUAL"):
                continue
            table = name.decode("utf-8", "replace")
            with contextlib.suppress(*_ERRORS):  # one that is broken is none
                # Generated and hidden columns are not in its answer.
                described = self._connection.execute(f"PRAGMA main.table_info({_quoted(table)})")
                columns = described.fetchmany(limits.SQLITE_COLUMNS_MAX)
                self.tables[table] = tuple(column[1].decode("utf-8", "replace") for column in columns)


def _may(action: int, first: str | None, second: str | None, database: str | None, by: str | None) -> int:
    """The authorizer: reading columns, and asking for a table's columns; `by` is a view or trigger."""
    allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (
        action == sqlite3.SQLITE_PRAGMA and first == "table_info"
    )
    return sqlite3.SQLITE_OK if allowed and by is None else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _copy(file: BinaryIO, copy: BinaryIO) -> bool:
    """Copy it, made as long as its header says; whether it was too short.

    SQLite reads nothing at all of a file that is cut off; of one whose last pages are empty, the others.
    """
    file.seek(0)
    header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(MAGIC):
        raise BadTrace("the file is no SQLite database, or cut off in its first 100 bytes", 0)
    file.seek(0)
    shutil.copyfileobj(file, copy, _COPY_BYTES)
    size = copy.tell()
    page = int.from_bytes(header[16:18], "big")
    said = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
    if size < said <= limits.TRACE_FILE_BYTES_MAX:
        copy.truncate(said)
    return size < said
