"""Traces of all hosts in one folder of the user's (profclient/layout.py): whole, or missing with a reason."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from profproto.v1 import capture_pb2 as pb
from profproto.v1 import query_pb2

from profclient.cli import capture_view
from profclient.errors import ClientError, UsageError
from profclient.fleet.host import Host
from profclient.fleet.pace import BYTES_PER_SECOND, Pace
from profclient.fleet.way import Way, each
from profclient.layout import CaptureFolder, partition

AT_ONCE: Final = 8  # hosts that send
TRACES_MAX: Final = 4096  # of a host
LIST_BYTES_MAX: Final = 4 << 20  # of a host's list of them
_RANKS_MAX: Final = 1 << 31
HOST_BYTES: Final = 32 << 30  # of a host's traces, unless the user says otherwise: more than its store has by default
_FREE_SHARE: Final = 0.05  # of the folder's file system, which stays free whatever hosts send
_LOOK_BYTES: Final = 16 << 20  # between two looks at that
_READ_BYTES: Final = 1 << 20
_TRACE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # it comes from the host, and names a folder


async def collect(
    way: Way,
    fleet_id: str,
    to: Path,
    left_out: Iterable[tuple[str, str]] = (),
    bytes_per_second: int = BYTES_PER_SECOND,
    host_bytes: int = HOST_BYTES,
) -> dict[str, Any]:
    """Bring the traces of all hosts: what `_COMMIT.json` says, or would if there were a trace.

    Not more than `bytes_per_second` from all of them together: the jobs go on, on the same network and disks. A host
    that sends more than `host_bytes`, or than the disk has room for, is left out, and `missing` says so.
    Raises UsageError where the folder is there already, or cannot be written.
    """
    with CaptureFolder(to, fleet_id) as folder:
        answers = await each(
            way, functools.partial(_of_host, folder, fleet_id, Pace(bytes_per_second), host_bytes), at_once=AT_ONCE
        )
        rows: list[dict[str, Any]] = []
        missing: list[dict[str, Any]] = []
        for host, answer in answers.items():
            if isinstance(answer, UsageError):
                raise answer
            if isinstance(answer, ClientError):
                missing.append(_missing(host, None, str(answer)))
            else:
                rows += answer[0]
                missing += answer[1]
        missing += [_missing(host, None, why) for host, why in left_out]
        if not rows:
            return {"capture": fleet_id, "traces": rows, "missing": missing}
        return folder.commit(rows, missing=missing)


async def _of_host(
    folder: CaptureFolder, fleet_id: str, pace: Pace, host_bytes: int, host: Host
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Its rows of the commit, and what it has no trace of."""
    capture = await host.call("GetCapture", pb.CaptureRef(id=fleet_id))
    listed = await _listed(host, capture.id) if any(target.trace for target in capture.targets) else []
    missing = [
        _missing(host.name, target.rank if target.HasField("rank") else None, _why(target))
        for target in capture.targets
        if target.trace not in {one["trace"] for one in listed}
    ]
    if not listed:
        return [], missing
    try:
        return await _brought(host, capture.id, listed, folder, pace, host_bytes), missing
    except ClientError as error:
        shutil.rmtree(folder.partial / partition("host", host.name), ignore_errors=True)
        if isinstance(error, UsageError):
            raise
        return [], [*missing, *(_missing(host.name, one["rank"], str(error)) for one in listed)]


async def _listed(host: Host, capture: str) -> list[dict[str, Any]]:
    """The traces that a host has of a capture: rows of the commit, but for where they lie and what they have."""
    request = query_pb2.QueryRequest(name="traces", scope=query_pb2.Scope(capture=capture))
    said = bytearray()
    async for piece in host.ask(request):
        said += piece
        if len(said) > LIST_BYTES_MAX:
            raise ClientError(f"its list of traces is longer than {LIST_BYTES_MAX >> 20} MiB: no profd has that many.")
    try:
        traces = json.loads(said)["traces"][: TRACES_MAX + 1]
        rows = [_row(host.name, capture, one) for one in traces]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClientError(f"its list of traces is none of profd's ({error}).") from error
    if len(rows) > TRACES_MAX:
        raise ClientError(f"it lists more than {TRACES_MAX:,} traces of one capture.")
    return rows


def _row(host: str, capture: str, one: Mapping[str, Any]) -> dict[str, Any]:
    trace, rank = one["trace"], one["rank"]
    if not isinstance(trace, str) or not _TRACE.fullmatch(trace):
        raise ValueError(f"{str(trace)[:100]!r} is no id of a trace")
    if rank is not None and (not isinstance(rank, int) or not 0 <= rank < _RANKS_MAX):
        raise ValueError(f"{str(rank)[:20]!r} is no rank")
    return {"host": host, "rank": rank, "trace": trace, "capture": capture}


async def _brought(
    host: Host, capture: str, listed: list[dict[str, Any]], folder: CaptureFolder, pace: Pace, host_bytes: int
) -> list[dict[str, Any]]:
    """Its traces, as they come into a file without a name, and from there into their places."""
    request = query_pb2.QueryRequest(name="export", scope=query_pb2.Scope(capture=capture))
    request.arguments.update({"format": "bundle"})
    with tempfile.TemporaryFile(dir=folder.partial) as spool:
        size = looked = 0
        try:
            async for piece in host.ask(request):
                size += len(piece)
                if size > host_bytes:
                    raise ClientError(f"it sends more than {host_bytes} bytes: --host-bytes takes more of each host.")
                if size >= looked:
                    _check_room(folder.partial, size)
                    looked = size + _LOOK_BYTES
                spool.write(piece)
                await asyncio.sleep(pace.wait(len(piece)))  # what is not read is not sent: the windows of a relay
            spool.seek(0)
        except OSError as error:
            raise UsageError(f"{folder.partial} cannot be written: {error.strerror}.") from error
        return await asyncio.to_thread(folder.add, listed, iter(functools.partial(spool.read, _READ_BYTES), b""))


def _check_room(folder: Path, size: int) -> None:
    """ClientError where so many bytes, which are copied once more, leave too little of the disk free."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < size + _LOOK_BYTES + _FREE_SHARE * found.f_blocks * found.f_frsize:
        raise ClientError(f"the disk of {folder.parent} has no room for it ({_FREE_SHARE:.0%} stays free): free space.")


def _why(target: pb.TargetStatus) -> str:
    if target.trace:
        return f"its trace {target.trace} is not stored any more"
    return target.message or f"it has no trace: {capture_view.state_name(target.state)}"


def _missing(host: str, rank: int | None, why: str) -> dict[str, Any]:
    return {"host": host, "rank": rank, "why": why}
