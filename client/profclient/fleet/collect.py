"""Traces of all hosts in one folder of the user's (profclient/layout.py): whole, or missing with a reason."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import shutil
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from profproto.v1 import capture_pb2 as pb
from profproto.v1 import query_pb2

from profclient.as_json import state_name
from profclient.errors import ClientError, UsageError
from profclient.fleet.host import Host
from profclient.fleet.messages import sentence
from profclient.fleet.pace import BYTES_PER_SECOND, Pace
from profclient.fleet.way import Way, each
from profclient.layout import CaptureFolder, partition

AT_ONCE: Final = 8  # hosts that send
BY_PROGRAMS: Final = "programs"  # Fleet.found
CAPTURES_MAX: Final = 1000  # that a host lists
TRACES_MAX: Final = 1024  # of a host in one capture, of which its daemon records 256 processes
LIST_BYTES_MAX: Final = 4 << 20  # of a host's list of them
COMMIT_TRACES_MAX: Final = 4096  # of all hosts: `profctl --store` asks no capture with more, and reads no more of a
COMMIT_BYTES_MAX: Final = 48 << 20  # commit than 64 MiB (profd.limits)
HOST_SECONDS: Final = 7200.0  # for all that a host has; one question takes an hour at most
HOST_BYTES_MAX: Final = 64 << 30  # of the traces of one host
FREE_MIN: Final = 0.05  # of the disk that the folder is on
_NAME_MAX: Final = 64  # characters of a user's name, as a host says it
_RANKS_MAX: Final = 1 << 31
_READ_BYTES: Final = 1 << 20
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # of a trace, and names a folder; of a capture. A host says it


@dataclass(slots=True)
class Brought:
    """Of a host: its rows of the commit, and of what is missing; whose capture it has."""

    rows: list[dict[str, Any]]
    missing: list[dict[str, Any]]
    owner: str


async def collect(
    way: Way,
    fleet_id: str,
    to: Path,
    left_out: Iterable[tuple[str, str]] = (),
    bytes_per_second: int = BYTES_PER_SECOND,
    host_bytes: int = HOST_BYTES_MAX,
) -> dict[str, Any]:
    """Bring the traces of all hosts: what `_COMMIT.json` says, or would if there were a trace.

    Not more than `bytes_per_second` from all of them together: the jobs go on, on the same network and disks. A host
    that has more than `host_bytes`, or more than the disk has room for, is missing. So is one whose capture is of
    another user than those of most hosts: an administrator sees all, and any user may call one so.
    Raises UsageError where the folder is there already, or cannot be written.
    """
    with CaptureFolder(to, fleet_id) as folder:
        bring = functools.partial(_of_host, folder, fleet_id, Pace(bytes_per_second), host_bytes)
        answers = _of_one_owner(folder, _readable(folder, await each(way, bring, at_once=AT_ONCE)))
        rows: list[dict[str, Any]] = []
        missing: list[dict[str, Any]] = []
        taken: dict[str, str] = {}
        for host, answer in answers.items():
            if isinstance(answer, UsageError):
                raise answer
            if isinstance(answer, ClientError):
                missing.append(_missing(host, None, str(answer)))
            else:
                rows += _once(folder, taken, answer.rows, missing)
                missing += answer.missing
        missing += [_missing(host, None, why) for host, why in left_out]
        if not rows:
            return {"capture": fleet_id, "traces": rows, "missing": missing}
        return folder.commit(rows, missing=missing)


def _readable(folder: CaptureFolder, answers: dict[str, Brought | ClientError]) -> dict[str, Brought | ClientError]:
    """The answers without those of hosts that say so much more than others that nobody could read the commit."""
    said = {host: answer for host, answer in answers.items() if not isinstance(answer, ClientError)}
    left_out: dict[str, Brought | ClientError] = {}
    for most, what in ((COMMIT_TRACES_MAX, "traces"), (COMMIT_BYTES_MAX, "bytes of names")):
        sizes = {
            host: len(answer.rows) if what == "traces" else len(json.dumps([answer.rows, answer.missing]))
            for host, answer in said.items()
        }
        usual = statistics.median_low(sizes.values()) if sizes else 0
        while sum(sizes.values()) > most and sizes[host := max(sizes, key=lambda one: sizes[one])] > 2 * usual:
            del said[host]
            folder.remove(partition("host", host))
            words = (
                f"it has {sizes.pop(host):,} {what}: with others' these are more than {most:,}, and could not be read."
            )
            left_out[host] = ClientError(words)
    return {**answers, **left_out}


def _of_one_owner(folder: CaptureFolder, answers: dict[str, Brought | ClientError]) -> dict[str, Brought | ClientError]:
    """The answers without those whose capture is of another user than those of most hosts."""
    owners = {host: answer.owner for host, answer in answers.items() if not isinstance(answer, ClientError)}
    if len(set(owners.values())) < 2:
        return answers
    meant = Counter(owners.values()).most_common(1)[0][0]
    left_out: dict[str, Brought | ClientError] = {}
    for host in (host for host, owner in owners.items() if owner != meant):
        folder.remove(partition("host", host))
        left_out[host] = ClientError(
            f"the capture that it calls so is of {owners[host][:_NAME_MAX]}, and those of most hosts are of "
            f"{meant[:_NAME_MAX]}; where it is the one that is meant, name it alone: --hosts {host}"
        )
    return {**answers, **left_out}


def _once(
    folder: CaptureFolder, taken: dict[str, str], rows: list[dict[str, Any]], missing: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The traces of a host whose ids no other host has `taken`: a capture with two of one id cannot be read at all."""
    kept = []
    for one in rows:
        first = taken.setdefault(one["trace"], one["host"])
        if first == one["host"]:
            kept.append(one)
            continue
        folder.remove(one["path"])
        why = f"its trace has the id {one['trace']}, as one of {first} has: it may be another's"
        missing.append(_missing(one["host"], one["rank"], why))
    return kept


async def _of_host(folder: CaptureFolder, fleet_id: str, pace: Pace, host_bytes: int, host: Host) -> Brought:
    """`_all_of_host`, if it comes in time: a host that sends by the byte keeps the others' traces waiting."""
    try:
        async with asyncio.timeout(HOST_SECONDS):
            return await _all_of_host(folder, fleet_id, pace, host_bytes, host)
    except TimeoutError:
        raise ClientError(f"it has not sent all within {HOST_SECONDS:g} s.") from None


async def _all_of_host(folder: CaptureFolder, fleet_id: str, pace: Pace, host_bytes: int, host: Host) -> Brought:
    """Its rows of the commit, and what it has no trace of."""
    captures = await captures_of(host, fleet_id)
    listed: dict[str, list[dict[str, Any]]] = {}
    for capture in captures:
        if not _ID.fullmatch(capture.id):
            raise ClientError(f"{capture.id[:100]!r} is no id of a capture.")
        if any(target.trace for target in capture.targets):
            listed[capture.id] = await _listed(host, capture.id)
    ids = [one["trace"] for rows in listed.values() for one in rows]
    stored = set(ids)
    if len(stored) < len(ids):
        raise ClientError("its list has a trace twice: no profd's has.")
    missing = [
        _missing(host.name, target.rank if target.HasField("rank") else None, sentence(_why(target)))
        for capture in captures
        for target in capture.targets
        if target.trace not in stored
    ]
    brought: list[dict[str, Any]] = []
    try:
        for capture_id, rows in listed.items():
            if rows:
                brought += await _brought(host, capture_id, rows, folder, pace, host_bytes)
    except BaseException as error:  # nothing of it stays, whoever ends it: engines read what lies there
        folder.remove(partition("host", host.name))
        if isinstance(error, UsageError) or not isinstance(error, ClientError):
            raise
        lost = [_missing(host.name, one["rank"], str(error)) for rows in listed.values() for one in rows]
        return Brought([], [*missing, *lost], captures[0].owner)
    return Brought(brought, missing, captures[0].owner)


async def captures_of(host: Host, fleet_id: str) -> list[pb.Capture]:
    """The host's part: one capture, or several where its programs asked by themselves, and not within moments."""
    capture: pb.Capture = await host.call("GetCapture", pb.CaptureRef(id=fleet_id))
    if capture.fleet.found != BY_PROGRAMS:
        return [capture]
    listed = await host.call("ListCaptures", pb.ListCapturesRequest(limit=CAPTURES_MAX))
    mine = (capture.fleet.id, capture.owner)
    return [one for one in listed.captures if (one.fleet.id, one.owner) == mine] or [capture]


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
    if not isinstance(trace, str) or not _ID.fullmatch(trace):
        raise ValueError(f"{str(trace)[:100]!r} is no id of a trace")
    if rank is not None and (type(rank) is not int or not 0 <= rank < _RANKS_MAX):
        raise ValueError(f"{str(rank)[:20]!r} is no rank")
    return {"host": host, "rank": rank, "trace": trace, "capture": capture}


async def _brought(
    host: Host, capture: str, listed: list[dict[str, Any]], folder: CaptureFolder, pace: Pace, host_bytes: int
) -> list[dict[str, Any]]:
    """Its traces, as they come into a file without a name, and from there into their places."""
    request = query_pb2.QueryRequest(name="export", scope=query_pb2.Scope(capture=capture))
    request.arguments.update({"format": "bundle"})
    with tempfile.TemporaryFile(dir=folder.partial) as spool:
        try:
            came = 0
            async for piece in host.ask(request):
                came += len(piece)
                # In a thread: a disk that is slow, or stands still, keeps neither the relays nor other hosts waiting.
                await asyncio.to_thread(_keep, folder, spool, piece, came, host_bytes)
                await asyncio.sleep(pace.wait(len(piece)))  # what is not read is not sent: the windows of a relay
            spool.seek(0)
        except OSError as error:
            raise UsageError(f"{folder.into} cannot be written: {error.strerror}.") from error
        adding = asyncio.ensure_future(
            asyncio.to_thread(folder.add, listed, iter(functools.partial(spool.read, _READ_BYTES), b""))
        )
        try:
            return await asyncio.shield(adding)
        except asyncio.CancelledError:  # the folder goes, and its descriptors: nothing may be written by them any more
            spool.close()  # which ends it
            await asyncio.wait({adding})
            adding.exception()
            raise


def _keep(folder: CaptureFolder, spool: IO[bytes], piece: bytes, came: int, most: int) -> None:
    _check_room(folder, came, most)
    spool.write(piece)


def _check_room(folder: CaptureFolder, came: int, most: int) -> None:
    """Raises ClientError where a host sends more than is wanted of it, or than leaves room to unpack it."""
    if came > most:
        raise ClientError(f"its traces have more than {most:,} bytes, which --host-bytes allows from one host.")
    disk = shutil.disk_usage(folder.partial)
    if disk.free - came < FREE_MIN * disk.total:
        raise ClientError(
            f"its traces need more room than {folder.into} has: {FREE_MIN:.0%} of the disk stay free. Free some, or "
            "name another --to."
        )


def _why(target: pb.TargetStatus) -> str:
    if target.trace:
        return f"its trace {target.trace} is not stored any more"
    return target.message or f"it has no trace: {state_name(target.state)}"


def _missing(host: str, rank: int | None, why: str) -> dict[str, Any]:
    return {"host": host, "rank": rank, "why": why}
