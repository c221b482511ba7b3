"""Records of captures of many hosts in the user's own files, so that another command can take one up."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profclient.errors import ClientError, NotFoundError, UsageError
from profclient.fleet.hostlist import hosts
from profclient.fleet.way import FANOUT, Way
from profclient.owners import are_ours

KEPT_MAX: Final = 200
_BELOW: Final = ("profd", "fleets")  # the folder that the environment names
_ID_CHARACTERS: Final = 13
_RECORD_BYTES_MAX: Final = 4 << 20
_REASON_CHARACTERS_MAX: Final = 300  # of a host's, so that none keeps the capture from being taken up


@dataclass(frozen=True, slots=True)
class Record:
    """A capture, the way to its hosts, those that took no part, with the reason, and where its traces were brought."""

    id: str
    way: Way
    left_out: Mapping[str, str] = field(default_factory=dict)
    collected: str = ""
    busy: tuple[str, ...] = ()  # of those that took no part: captures held their processes


def folder() -> Path:
    """The folder of the records."""
    base, below = _place()
    return Path(base, *below)


def _place() -> tuple[str, tuple[str, ...]]:
    """The folder that the environment names, and the folders below it."""
    if given := os.environ.get("XDG_STATE_HOME"):
        return given, _BELOW
    return os.path.expanduser("~"), (".local", "state", *_BELOW)


def _is_ours() -> bool:
    """Whether nobody else can write there: a record says which command is run."""
    base, below = _place()
    return are_ours(base, *below)


def _written() -> list[Path]:
    """The files of the records. Raises NotFoundError where they may be another user's."""
    if not _is_ours():
        raise NotFoundError(
            f"nothing in {folder()} is believed: another user can write there, and files there say what is run to "
            "reach hosts. Set HOME to your own and XDG_STATE_HOME to nothing, or name the hosts with --hosts and --via."
        )
    return sorted(folder().glob("f*.json"))


def write(record: Record) -> None:
    """Whole or not at all; the oldest beyond `KEPT_MAX` go. Raises OSError."""
    if not _is_ours():
        raise PermissionError(errno.EACCES, "another user can write there")
    place = folder()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    way = record.way
    value = {
        "id": record.id,
        "hosts": list(way.hosts),
        "via": way.via,
        "python": way.python,
        "fanout": way.fanout,
        "others": way.others,
        "left_out": {host: why[:_REASON_CHARACTERS_MAX] for host, why in record.left_out.items()},
        "collected": record.collected,
        "busy": list(record.busy),
    }
    partial = place / f".{record.id}.{os.getpid()}.part"
    partial.write_text(json.dumps(value))
    partial.replace(place / f"{record.id}.json")
    for old in sorted(place.glob("f*.json"), key=_written_ns, reverse=True)[KEPT_MAX:]:
        old.unlink(missing_ok=True)


def find(prefix: str) -> Record:
    """The one whose id begins so. Raises NotFoundError, UsageError where several do."""
    named = [path for path in _written() if path.stem.startswith(prefix)]
    if len(named) > 1:
        raise UsageError(f"{prefix!r} is the beginning of {len(named)} captures; give more of it.")
    if named:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return _record(json.loads(named[0].read_bytes()[:_RECORD_BYTES_MAX]))
    whole = "" if len(prefix) == _ID_CHARACTERS else "give its whole id, and "
    raise NotFoundError(
        f"no file in {folder()} says where capture {prefix} is: {whole}name its hosts with --hosts and --via, or its "
        "job of Slurm with --job."
    )


def newest(limit: int) -> list[tuple[int, Record]]:
    """When each was last written (Unix time, ns), the latest first; damaged ones are left out. As `_written` raises."""
    found = []
    for path in sorted(_written(), key=_written_ns, reverse=True)[:limit]:
        with suppress(OSError, ValueError, KeyError, TypeError, ClientError):
            found.append((_written_ns(path), _record(json.loads(path.read_bytes()[:_RECORD_BYTES_MAX]))))
    return found


def _written_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _record(value: dict[str, Any]) -> Record:
    named = tuple(hosts(tuple(value["hosts"])))
    others = tuple((str(via), tuple(hosts(tuple(names)))) for via, names in value.get("others", ()))
    way = Way(named, value["via"], value.get("python", ""), int(value.get("fanout", FANOUT)), others)
    busy = tuple(map(str, value.get("busy", ())))
    return Record(value["id"], way, dict(value.get("left_out", {})), str(value.get("collected", "")), busy)
