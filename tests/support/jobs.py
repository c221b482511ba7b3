"""Jobs that behave badly on purpose, for tests of the worker pool."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from profd.errors import BadTrace, NotFound
from profd.workers.jobs import Job, Progress

JOBS = {
    name: f"tests.support.jobs:{name}"
    for name in (
        "echo",
        "fail",
        "die",
        "hang",
        "hoard",
        "huge",
        "copy",
        "count",
        "glance",
        "reach",
        "garble",
        "aside",
        "columns",
    )
}


class OurOwn(NotFound):
    """A type the daemon's errors module does not know."""


def echo(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    return {"args": args, "pid": os.getpid(), "fds": len(fds)}


def fail(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    match args["how"]:
        case "bad trace":
            raise BadTrace("byte 7 is wrong", 7)
        case "subclass":
            raise OurOwn("nothing of that name")
        case "memory":
            raise MemoryError
        case "not json":
            return {"value": object()}
    raise ValueError("a bug")


def die(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    if args.get("exit") is not None:
        os._exit(args["exit"])
    signal.raise_signal(args.get("signal", signal.SIGKILL))
    return {}


def hang(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Write one byte to fds[0] and wait for ever."""
    if fds:
        os.write(fds[0], b"x")
    threading.Event().wait()
    return {}


def glance(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Write one byte to fds[0], wait until fds[1] ends, and then write more than any pipe holds."""
    os.write(fds[0], b"x")
    os.read(fds[1], 1)
    with os.fdopen(os.dup(fds[0]), "wb") as out:
        out.write(bytes(1 << 21))
    return {}


def columns(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Have Arrow decode columns, in its own thread."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1], "b": [2]}), file)
    return {"rows": pq.ParquetFile(pa.BufferReader(file.getvalue())).read(use_threads=True).num_rows}


def spin(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Use the CPU for ever, in code that hears no signal."""
    return {"sum": sum(itertools.repeat(1))}


def aside(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Write a temporary file of so many bytes, and never end."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(args["bytes"]))
        file.flush()
        return spin(args, fds, progress)


def hoard(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    return {"size": len(bytearray(args["bytes"]))}


def huge(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    return {"text": "x" * args["bytes"]}


def copy(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """fds[0] to fds[1]."""
    with os.fdopen(fds[0], "rb") as source, os.fdopen(fds[1], "wb") as sink:
        return {"bytes": sink.write(source.read())}


def count(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    for number in range(args["to"]):
        progress(f"step {number}", number / args["to"])
    return {"open": sum(_is_open(fd) for fd in range(256))}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def reach(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Try what a worker may not do; the names of what worked."""
    worked = []
    for name, attempt in {
        "socket": lambda: socket.socket(socket.AF_INET).close(),
        "unix socket": lambda: socket.socket(socket.AF_UNIX).close(),
        "exec": lambda: subprocess.run(["/bin/true"], check=False),
        "kill": lambda: os.kill(args["pid"], 0),
    }.items():
        try:
            attempt()
        except OSError:
            continue
        worked.append(name)
    return {"worked": worked}


def garble(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """What a worker that has been taken over might send to the daemon."""
    os.write(int(sys.argv[1]), bytes.fromhex(args["hex"]))
    threading.Event().wait()
    return {}


def store_in_pieces(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """`store_trace`, in segments of 64 rows."""
    from functools import partial

    from profd.collate.collator import Collator
    from profd.importing import pipeline

    pipeline.Collator = partial(Collator, segment_rows=64)  # type: ignore[attr-defined,assignment]
    return pipeline.store_trace(args, fds, progress)


def reached(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """How reading each of `paths` ends, and writing into the directories; to `fds[0]`, too."""
    folders = [args[name] for name in ("trace_dir", "staging") if isinstance(args.get(name), str)]
    said = {
        "ends": [_end_of(path, os.O_RDONLY) for path in args["paths"]],
        "changed": [_end_of(os.path.join(folder, "new"), os.O_CREAT | os.O_WRONLY) for folder in folders],
        "uid": os.getuid(),
        "scratch": os.environ.get("TMPDIR", ""),
    }
    if fds:
        os.write(fds[0], json.dumps(said).encode())
    return said


def _end_of(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags))
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "worked"


def reaching(path: str) -> Job:
    """`reached` for this file, whatever was asked."""
    return lambda args, fds, progress: reached({"paths": [path]}, fds, progress)


def taken_over(path: str) -> Job:
    """An upgrade by a trace that has taken its worker over: it wants this file, and to be somebody else's."""

    def rewrite(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
        from profd.segments import rewrite

        assert _end_of(path, os.O_RDONLY) == "EACCES"
        rewrite.rewrite(args, fds, progress)
        meta = os.path.join(args["staging"], "meta.json")
        with open(meta, encoding="utf-8") as file:
            said = json.load(file)
        with open(meta, "w", encoding="utf-8") as file:
            json.dump({**said, "owner_uid": 0}, file)
        return {}

    return rewrite
