"""nvprof databases, built by hand: the tables and columns that an importer meets."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PREFIX = "CUPTI_ACTIVITY_KIND_"
TABLES = {
    "StringTable": "_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT",
    "MARKER": "flags INT, timestamp INT, id INT, objectKind INT, objectId BLOB, name INT, domain INT",
    "MARKER_DATA": "flags INT, id INT, payloadKind INT, payload BLOB, color INT, category INT",
    "RUNTIME": "cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT, returnValue INT",
    "DRIVER": "cbid INT, start INT, end INT, processId INT, threadId INT, correlationId INT, returnValue INT",
    "CONCURRENT_KERNEL": "start INT, end INT, completed INT, deviceId INT, contextId INT, streamId INT,"
    " gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT, staticSharedMemory INT,"
    " dynamicSharedMemory INT, registersPerThread INT, correlationId INT, gridId INT, name INT,"
    " queued INT, submitted INT",
    "MEMCPY": "copyKind INT, srcKind INT, dstKind INT, flags INT, bytes INT, start INT, end INT, deviceId INT,"
    " contextId INT, streamId INT, correlationId INT, runtimeCorrelationId INT",
    "MEMSET": "value INT, bytes INT, start INT, end INT, deviceId INT, contextId INT, streamId INT,"
    " correlationId INT, memoryKind INT",
    "NAME": "objectKind INT, objectId BLOB, name INT",
    "OVERHEAD": "overheadKind INT, objectKind INT, objectId BLOB, start INT, end INT",
    "DEVICE": "id INT, name INT",
}

T0 = 1_600_000_000_000_000_000
PID, TID = 4242, 3_000_000_000  # beyond i32, as pthread ids are
THREAD = 2


def object_id(pid: int = PID, tid: int = TID) -> bytes:
    """Of a thread: two u32, and the rest of the union."""
    return struct.pack("<III", pid, tid, 0)


class Database:
    """A database under construction, open until `close`."""

    def __init__(self, path: Path, tables: Iterable[str] = TABLES) -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        for table in tables:
            if table == "StringTable":
                self.connection.execute(f"CREATE TABLE StringTable ({TABLES[table]})")
            else:
                columns = f"_id_ INTEGER PRIMARY KEY AUTOINCREMENT, {TABLES[table]}"
                self.connection.execute(f"CREATE TABLE {PREFIX}{table} ({columns})")

    def string(self, value: str) -> int:
        """The number of a string."""
        if value not in self._strings:
            done = self.connection.execute("INSERT INTO StringTable (value) VALUES (?)", (value,))
            self._strings[value] = int(done.lastrowid or 0)
        return self._strings[value]

    def add(self, table: str, **values: Any) -> None:
        """A row; names of columns as keys."""
        marks = ", ".join("?" * len(values))
        self.connection.execute(
            f"INSERT INTO {PREFIX}{table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )

    def range(self, number: int, name: str, start: int, end: int, **place: Any) -> None:
        """Both rows of a marker."""
        where = {"flags": 2, "objectKind": THREAD, "objectId": object_id(), "domain": 0} | place
        self.add("MARKER", timestamp=T0 + start, id=number, name=self.string(name), **where)
        self.add("MARKER", timestamp=T0 + end, id=number, name=0, **where | {"flags": 4})

    def call(self, cbid: int, start: int, end: int, correlation: int, table: str = "RUNTIME", **other: Any) -> None:
        """A runtime or driver call."""
        values = {"processId": PID, "threadId": TID, "returnValue": 0} | other
        self.add(table, cbid=cbid, start=T0 + start, end=T0 + end, correlationId=correlation, **values)

    def kernel(self, name: str, start: int, end: int, correlation: int, **other: Any) -> None:
        """A kernel on stream 7 of device 0."""
        values = {"deviceId": 0, "contextId": 1, "streamId": 7, "staticSharedMemory": 16, "dynamicSharedMemory": 32}
        values |= {f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"} | {"gridX": 8, "blockX": 128}
        values |= {"registersPerThread": 40} | other
        number = self.string(name)
        self.add("CONCURRENT_KERNEL", start=T0 + start, end=T0 + end, correlationId=correlation, name=number, **values)

    def close(self) -> Path:
        """The finished file."""
        self.connection.commit()
        self.connection.close()
        return self.path


def training_step(path: Path) -> Path:
    """An op in a range, its launch and kernel, a copy, a fill, a driver call, and names for all of it."""
    base = Database(path)
    base.range(1, "step", 0, 1000)
    base.range(2, "aten::mm", 100, 400)
    base.call(211, 150, 200, 11)
    base.kernel("_Z4gemmPf", 300, 900, 11)
    base.call(307, 160, 190, 12, "DRIVER")
    base.call(41, 500, 550, 13)
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 99}
    copied = {"copyKind": 1, "srcKind": 1, "dstKind": 3, "bytes": 4096, "runtimeCorrelationId": 13}
    base.add("MEMCPY", start=T0 + 910, end=T0 + 950, **place, **copied)
    base.call(51, 600, 610, 14)
    base.add("MEMSET", start=T0 + 960, end=T0 + 970, **place | {"correlationId": 14}, value=0, bytes=64, memoryKind=3)
    base.add("OVERHEAD", overheadKind=1 << 16, objectKind=THREAD, objectId=object_id(), start=T0 + 700, end=T0 + 720)
    base.add("NAME", objectKind=THREAD, objectId=object_id(), name=base.string("trainer"))
    base.add("NAME", objectKind=1, objectId=object_id(), name=base.string("train.py"))
    base.add("DEVICE", id=0, name=base.string("Tesla V100"))
    return base.close()
