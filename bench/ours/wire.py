"""Real programs under the Python tracer, their events on the wire, and files of event chunks."""

from __future__ import annotations

import gzip
import importlib
import io
import os
import struct
import tempfile
import time
import warnings
import zlib
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from profd.decode.chunk_header import HEADER, Header
from profd.questions.jobs import JOBS, find

ARENA_BYTES = 512 << 20
STRINGS_BYTES = 8 << 20
REPEAT = 5
SLOT_BYTES, CHUNK_BYTES, CHUNK_HEADER_BYTES = 32, 64 * 1024, 128
THREADS = 4  # of a file of chunks
TRACED = 2  # the recorder's bit of the Python tracer


def lib2to3() -> None:
    """2to3 over a module of the standard library: a parser and a tree with many visitors."""
    import argparse

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refactor: Any = importlib.import_module("lib2to3.refactor")
    fixers = refactor.get_fixers_from_package("lib2to3.fixes")
    source = Path(argparse.__file__).read_text()
    refactor.RefactoringTool(fixers).refactor_string(
        source[: source.rindex("\nclass ArgumentParser")] + "\n", "argparse"
    )


def _programs() -> dict[str, Any]:
    from bench.ours.tracing import pure_json, unparse

    known = {"json without its C parts": pure_json, "ast.unparse of argparse.py": unparse}
    return {"lib2to3 over argparse.py": lib2to3, **known} if importlib.util.find_spec("lib2to3") else known


def names() -> list[str]:
    """The programs that this Python can run."""
    return list(_programs())


def _record(program: str) -> int:
    """Run it once under the tracer; the arena's descriptor."""
    from profclient import _recorder
    from profclient.tracer import Tracer

    run = _programs()[program]
    run()  # imports and compiles
    recorder: Any = _recorder
    fd = os.dup(recorder.arm(arena_bytes=ARENA_BYTES, strings_bytes=STRINGS_BYTES, sources=TRACED))
    tracer = Tracer()
    tracer.start(c_calls=False)
    run()
    tracer.stop()
    recorder.disarm()
    assert recorder.totals()["arena_full"] == 0
    return fd


def _encode(fd: int, *, compress: bool = True) -> tuple[int, list[bytes]]:
    """(CPU ns, chunks) of everything that the arena holds; nothing is freed but what a streamer would free."""
    from profclient._recorder import Drainer
    from profclient.streamer.compress import compressor

    reader = Drainer(fd, compressor() if compress else None)
    todo = [(index, False) for index, _, _ in reader.sealed()] + [(index, True) for index, _, _ in reader.open_chunks()]
    begin = time.thread_time_ns()
    chunks = [reader.encode(index, open=is_open) for index, is_open in todo]
    taken = time.thread_time_ns() - begin
    reader.close()
    return taken, [chunk for chunk in chunks if chunk is not None]


def acked(fd: int) -> list[bytes]:
    """The chunks of an arena as they travel when each is acked before the next is encoded: texts go out once."""
    from profclient._recorder import Drainer
    from profclient.streamer.compress import compressor

    reader = Drainer(fd, compressor())
    chunks = []
    for is_open, todo in ((False, reader.sealed()), (True, reader.open_chunks())):
        for index, _, _ in todo:
            chunk = reader.encode(index, open=is_open)
            reader.free(index)
            if chunk is not None:
                chunks.append(chunk)
    reader.close()
    return chunks


def on_the_wire(program: str) -> dict[str, float]:
    """What the events of a program take and cost: bytes and CPU ns per event."""
    fd = _record(program)
    plain = min(_encode(fd, compress=False)[0] for _ in range(REPEAT))
    whole = min(_encode(fd)[0] for _ in range(REPEAT))
    slots = np.concatenate([_slots(os.pread(fd, CHUNK_BYTES, at)) for at in _sealed_at(fd)])
    chunks = acked(fd)
    events = sum(Header._make(HEADER.unpack(chunk[: HEADER.size])).events for chunk in chunks)
    with tempfile.NamedTemporaryFile() as file:
        file.write(slots.tobytes())
        file.flush()
        from bench import floors

        copying, varints, _ = floors.run("wire", file.name)
    return {
        "events": events,
        "bytes": sum(map(len, chunks)) / events,
        "gz_json": _gz_json(b"".join(chunks)) / events,
        "encode_ns": plain / events,
        "whole_ns": whole / events,
        "copy_ns": copying / len(slots) * 1e9,
        "varint_ns": varints / len(slots) * 1e9,
    }


def _sealed_at(fd: int) -> list[int]:
    """Where the sealed chunks of an arena begin: docs/arena.md."""
    states, _, _, chunks, count = struct.unpack("<QQQQI", os.pread(fd, 36, 48))
    table = np.frombuffer(os.pread(fd, 4 * count, states), dtype=np.uint32)
    return [chunks + CHUNK_BYTES * int(number) for number in np.flatnonzero(table == 2)]


def _slots(chunk: bytes) -> Any:
    (count,) = struct.unpack_from("<I", chunk, 32)
    data = chunk[CHUNK_HEADER_BYTES : CHUNK_HEADER_BYTES + count * SLOT_BYTES]
    return np.frombuffer(data, dtype=np.dtype((np.void, SLOT_BYTES)))


def _gz_json(data: bytes) -> int:
    """Bytes of the same events as our Chrome export writes them, gzip -6 as torch's .json.gz."""
    from profd.export import chrome
    from profd.segments.reader import TraceReader

    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        _store(data, Path(folder))
        chrome.write(TraceReader(Path(folder)), out, None, lambda *_: None)
    return len(gzip.compress(out.getvalue(), 6))


def _store(data: bytes | Path, staging: Path) -> dict[str, Any]:
    from profd.importing.pipeline import store_trace

    fd = os.open(data, os.O_RDONLY) if isinstance(data, Path) else os.memfd_create("chunks")
    if isinstance(data, bytes):
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
    try:
        args = {"staging": str(staging), "meta": {}, "files": [{"format": "chunks", "fd": 0}]}
        return store_trace(args, [fd], lambda *_: None)
    finally:
        os.close(fd)


def write_file(path: str, events: int) -> int:
    """A file of so many events at least: one recording, or its beginning, again and again, on THREADS threads.

    Returns how many.
    """
    chunks = acked(_record(names()[0]))
    headers = [Header._make(HEADER.unpack(chunk[: HEADER.size])) for chunk in chunks]
    needed = 1 + bisect_left(list(accumulate(header.events for header in headers)), events)
    chunks, headers = chunks[:needed], headers[:needed]
    first, last = min(header.base_ns for header in headers), max(header.base_ns for header in headers)
    period = last - first + 1_000_000_000 // 100
    written = copies = 0
    with Path(path).open("wb") as out:
        while written < events:
            turn, thread = divmod(copies, THREADS)
            for chunk, header in zip(chunks, headers, strict=True):
                # A recording of its own, so that streams and texts do not mix; a little later than the one before.
                shift = turn * period + thread * 777
                moved = header._replace(
                    incarnation=1 + copies,
                    tid=100 + thread,
                    base_ns=header.base_ns + shift,
                    real_ns=header.real_ns + shift,
                    pid=4242,
                )
                out.write(_sealed(moved, chunk[HEADER.size :]))
                written += header.events
            copies += 1
    return written


def _sealed(header: Header, body: bytes) -> bytes:
    raw = HEADER.pack(*header)
    return HEADER.pack(*header._replace(crc=zlib.crc32(body, zlib.crc32(raw[16:])))) + body


def store(path: str) -> dict[str, Any]:
    """CPU seconds of a file of chunks to a stored trace, in a process that has imported what a waiting worker has."""
    for job in JOBS:
        find(job)
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        begin = time.process_time()
        found = _store(Path(path), Path(folder))
        taken = time.process_time() - begin
    return {"seconds": taken, "events": found["events"], "lost": found["lost"], "stages": found["timings_ns"]}


def parquet(events: int) -> float:
    """CPU seconds of the floor's last part: 29 bytes an event to Parquet, zstd-1, deltas of times and ids."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(1)
    taken = 0.0
    rows, names_ = 1 << 18, [f"function {number}" for number in range(175)]
    with tempfile.TemporaryFile() as file:
        writer = None
        for first in range(0, events, rows):
            count = min(rows, events - first)
            start = first * 300 + np.cumsum(random.integers(1, 600, count))
            table = pa.table(
                {
                    "start": start,
                    "end": start + random.integers(100, 20_000, count),
                    "parent": np.maximum(np.arange(first, first + count) - random.integers(0, 30, count), 0),
                    "name": pa.DictionaryArray.from_arrays(random.integers(0, 175, count, np.int32), names_),
                    "kind": random.integers(1, 3, count, np.uint8),
                }
            )
            begin = time.process_time()
            if writer is None:
                writer = pq.ParquetWriter(
                    file,
                    table.schema,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=["name"],
                    column_encoding=dict.fromkeys(("start", "end", "parent"), "DELTA_BINARY_PACKED"),
                )
            writer.write_table(table)
            taken += time.process_time() - begin
        begin = time.process_time()
        if writer is not None:
            writer.close()
        return taken + time.process_time() - begin
