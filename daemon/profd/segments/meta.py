"""`meta.json`: what a stored trace says of itself.

Additive only: readers ignore keys they do not know and fill in those that are
missing, so that traces outlive releases in both directions. `format` rises only
when an old reader would be wrong about what it sees.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from profd import _host
from profd.disk.files import at_once
from profd.errors import BadTrace, NotFound
from profd.limits import META_BYTES_MAX, META_MEMBERS_MAX, META_PART_BYTES_MAX
from profd.model.capture import Cost, HostClock, Loss, Phase
from profd.model.decodable import decodable
from profd.model.remembered import Remembered
from profd.model.resident import Resident
from profd.model.run_times import RunTimes
from profd.model.tracks import Tracks
from profd.model.traits import Traits, of_older
from profd.segments import plain_json

FORMAT: Final = 2  # 1: other columns and encodings, cells that came late in a file of their own
META_FILE: Final = "meta.json"
FLOWS_FILE: Final = "flows.parquet"
LATE_FILE: Final = "late.parquet"
REMEDY: Final = "Remove the trace with `profctl rm`; have a bundle exported again."


def segment_file(number: int) -> str:
    """The file of a segment: `segment-00000.parquet`."""
    return f"segment-{number:05d}.parquet"


Members: TypeAlias = Mapping[str, bytes]
"""Of a `meta.json`, by name: each as its text, unread."""


class SegmentInfo(msgspec.Struct, kw_only=True):
    """One Parquet file of events. Its rows are `first_row … first_row + rows - 1` of the trace."""

    file: str
    first_row: int
    rows: int
    start_ns: int  # of its first row
    end_ns: int  # latest end (or start) of any of its rows
    unended: int = 0  # rows without an end: they may reach beyond end_ns
    groups_end_ns: list[int | None] = msgspec.field(default_factory=list)  # of each row group; None: a row has no end


@decodable
class TraceMeta(msgspec.Struct, kw_only=True):
    """Everything about a trace that is not an event. None means not known, never zero."""

    format: int = FORMAT
    trace: str = ""
    capture: str = ""  # empty for imports
    owner_uid: int = -1
    owner: str = ""
    source: str = ""  # kineto, pyspy, import
    title: str = ""
    created_ns: int = 0
    start_ns: int | None = None  # of the first event
    end_ns: int | None = None
    events: int = 0
    gpu_events: int | None = None
    bytes: int = 0  # of all files but meta.json
    host: str = ""
    pid: int | None = None
    start_ticks: int | None = None  # with pid: which process it was
    rank: int | None = None
    job: str = ""
    window_start_ns: int | None = None  # what was asked for or granted, as the source reports it
    window_end_ns: int | None = None
    clock_error_ns: int | None = None  # no time is further than this from the host's clock
    host_clock: HostClock | None = None  # of a capture of many hosts; None: not known
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    not_honoured: list[str] = msgspec.field(default_factory=list)
    lost: list[Loss] = msgspec.field(default_factory=list)
    warnings: list[str] = msgspec.field(default_factory=list)
    anomalies: dict[str, int] = msgspec.field(default_factory=dict)  # counted, nothing lost
    cost: Cost = msgspec.field(default_factory=Cost)
    waterfall: list[Phase] = msgspec.field(default_factory=list)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    gpu: dict[str, int | str] = msgspec.field(default_factory=dict)  # what recorded CUDA says of itself (docs/gpu.md)
    run_times: RunTimes = msgspec.field(default_factory=RunTimes)  # of the process's threads, by the kernel
    resident: Resident = msgspec.field(default_factory=Resident)  # its memory, in looks through the window
    remembered: Remembered = msgspec.field(default_factory=Remembered)  # collectives, by torch's flight recorder
    truncated: str = ""  # a sentence when the input ended early
    tracks: Tracks = msgspec.field(default_factory=Tracks)
    top_level: dict[str, Any] = msgspec.field(default_factory=dict)  # keys beside traceEvents
    args: list[tuple[str, str]] = msgspec.field(default_factory=list)  # (key, type), in order of first use
    flows: int = 0  # flow records
    late: int = 0  # cells patched by late.parquet, in format 1
    columns: list[str] = msgspec.field(default_factory=list)  # that any event has a value in, from format 2 on
    segments: list[SegmentInfo] = msgspec.field(default_factory=list)
    timings: dict[str, int] = msgspec.field(default_factory=dict)  # ns per stage of the import
    traits: Traits | None = None  # as the source declares; None: written before traces said it, or from elsewhere

    @property
    def known_traits(self) -> Traits:
        """The traits of this trace, whichever build wrote it."""
        return self.traits or of_older(self.source)


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def encode_json(value: Any) -> bytes:
    """JSON of a struct or of plain values, whatever strings and integers foreign traces brought along."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError):
        # Lone surrogates are no UTF-8; the standard library writes them as escapes.
        return plain_json.dumps(msgspec.to_builtins(value)).encode("ascii")


def decode_struct(text: bytes, kind: type[_Struct]) -> _Struct:
    """The inverse of `encode_json`. ValueError or RecursionError if the text is no such thing."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(text), kind)


def decode_meta(text: bytes, where: str) -> TraceMeta:
    """TraceMeta of a JSON text; BadTrace, naming `where`, if it is none or from a newer format."""
    try:
        meta = decode_struct(text, TraceMeta)
    except (ValueError, RecursionError) as error:
        with contextlib.suppress(ValueError, RecursionError):  # of another form in a later format: that is no damage
            _check_format(decode_struct(text, _Written).format, where)
        raise _damaged(where, error) from error
    _check_format(meta.format, where)
    return meta


def read_meta(directory: Path) -> TraceMeta:
    """The TraceMeta of a trace directory. NotFound if there is none, BadTrace if it cannot be read.

    For workers: as objects it can take gigabytes, and the daemon has `read_members`.
    """
    return decode_meta(_read_text(directory), named(directory / META_FILE))


def read_members(directory: Path) -> dict[str, bytes]:
    """The members of a `meta.json` by name, each as its text, which is passed on unread. Raises as `read_meta` does."""
    path = directory / META_FILE
    members = members_of(_read_text(directory), named(path))
    _check_format(part_of(members, _Written, named(path)).format, named(path))
    return members


def members_of(text: bytes, where: str) -> dict[str, bytes]:
    """The same of a text. BadTrace, naming `where`, if it is no object."""
    try:
        found = _host.json_members(text, META_MEMBERS_MAX)
    except ValueError as error:
        raise _damaged(where, error) from error
    return {name.decode("utf-8", "replace"): value for name, value in found.items()}


def part_of(members: Members, kind: type[_Struct], where: str) -> _Struct:
    """The struct's members, decoded. BadTrace where they are not what it takes, or META_PART_BYTES_MAX long."""
    some = {name: members[name] for name in kind.__struct_fields__ if name in members}
    if sum(map(len, some.values())) > META_PART_BYTES_MAX:
        raise _damaged(where, ValueError(f"it says more than {META_PART_BYTES_MAX} bytes of {', '.join(some)}"))
    try:
        return decode_struct(joined(some), kind)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, error) from error


def joined(members: Members) -> bytes:
    """The inverse of `members_of`."""
    return b"{%b}" % b",".join(b'"%b":%b' % (name.encode(), value) for name, value in members.items())


class _Written(msgspec.Struct):
    format: int = FORMAT


def _check_format(written: int, where: str) -> None:
    if written > FORMAT:
        raise BadTrace(f"{where} has format {written}, this profd reads up to {FORMAT}: upgrade profd.")


def _damaged(where: str, error: Exception) -> BadTrace:
    return BadTrace(f"{where} is damaged: {error}. {REMEDY}")


def named(path: Path) -> str:
    """A file of a trace as people are told of it, without the directory that a worker reads it in."""
    return f"{path.parent.name}/{path.name}"


def _read_text(directory: Path) -> bytes:
    path = directory / META_FILE
    try:
        with open(path, "rb", opener=at_once) as file:
            # No more than there is: so much room is taken before anything is read.
            text = file.read(min(os.fstat(file.fileno()).st_size, META_BYTES_MAX) + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"There is no trace {directory.name}: it may just have been removed.") from error
    except OSError as error:
        raise BadTrace(f"{named(path)} cannot be read: {error.strerror}.") from error
    if len(text) > META_BYTES_MAX:
        raise BadTrace(f"{named(path)} is larger than {META_BYTES_MAX} bytes: not written by profd.")
    return text
