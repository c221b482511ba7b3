"""Traces of all hosts in one folder of the user's, laid out for any Parquet engine.

    DIR/capture=<id>/host=<host>/rank=<rank>/trace=<trace>/events.parquet
    DIR/capture=<id>/_COMMIT.json                     the last: what is there, and what is missing

A file has its name when it is whole. Without the marker the folder is not complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from profproto.v1 import capture_pb2 as pb
from profproto.v1 import query_pb2

from profclient.cli import capture_view
from profclient.errors import ClientError, UsageError
from profclient.fleet.host import Host
from profclient.fleet.way import Way, each

MARKER: Final = "_COMMIT.json"
VERSION: Final = 1
NO_RANK: Final = "__HIVE_DEFAULT_PARTITION__"  # how Hive, Spark and Arrow write null
AT_ONCE: Final = 8  # hosts that send
_TRACE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it comes from the host, and names a folder


class FolderError(UsageError):
    """The folder cannot be written, or a host would have us write elsewhere."""


async def collect(way: Way, fleet_id: str, to: Path, left_out: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Bring the traces of all hosts; the marker's content. Raises FolderError where the folder cannot be written."""
    place = to / f"capture={fleet_id}"
    with _writing(place):
        place.mkdir(parents=True, exist_ok=True)
        (place / MARKER).unlink(missing_ok=True)  # it would vouch for what is being replaced

    async def bring(host: Host) -> list[dict[str, Any]]:
        capture = await host.call("GetCapture", pb.CaptureRef(id=fleet_id))
        return [await _bring(host, target, place) for target in capture.targets]

    few = Way(way.hosts, way.via, way.python, min(way.fanout, AT_ONCE))
    answers = await each(few, bring)
    rows = [row for answer in answers.values() if not isinstance(answer, ClientError) for row in answer]
    for host, answer in answers.items():
        if isinstance(answer, FolderError):
            raise answer
        if isinstance(answer, ClientError):
            rows.append(_missing(host, None, str(answer)))
    rows += [_missing(host, None, why) for host, why in left_out]
    written = {
        "version": VERSION,
        "capture": fleet_id,
        "traces": [row for row in rows if "path" in row],
        "missing": [row for row in rows if "path" not in row],
    }
    with _writing(place / MARKER):
        _whole(place / MARKER, json.dumps(written, indent=1).encode())
    return written


async def _bring(host: Host, target: pb.TargetStatus, place: Path) -> dict[str, Any]:
    rank = target.rank if target.HasField("rank") else None
    if not target.trace:
        return _missing(host.name, rank, target.message or f"it has no trace: {capture_view.state_name(target.state)}")
    if not _TRACE.fullmatch(target.trace):
        raise FolderError(f"{host.name} names a trace {target.trace!r}, which no profd does: nothing of it is written.")
    folder = place / f"host={host.name}" / f"rank={NO_RANK if rank is None else rank}" / f"trace={target.trace}"
    path = folder / "events.parquet"
    request = query_pb2.QueryRequest(name="export", scope=query_pb2.Scope(trace=target.trace))
    request.arguments.update({"format": "parquet"})
    partial = folder / f".events.parquet.{os.getpid()}.part"
    try:
        with _writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            size = 0
            with partial.open("wb") as file:
                async for piece in host.ask(request):
                    size += file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
    except ClientError as error:
        if isinstance(error, FolderError):
            raise
        return _missing(host.name, rank, str(error))
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return {
        "host": host.name,
        "rank": rank,
        "trace": target.trace,
        "path": str(path.relative_to(place)),
        "bytes": size,
    }


def _missing(host: str, rank: int | None, why: str) -> dict[str, Any]:
    return {"host": host, "rank": rank, "why": why}


def _whole(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


class _writing(contextlib.AbstractContextManager[None]):  # noqa: N801 - it reads as a verb
    """An OSError in the block is a FolderError that names the path."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise FolderError(f"{self._path} cannot be written: {error.strerror}.") from error
