"""Captures that `export -f parquet --to DIR` or `collect` of profctl wrote, in the place of a store (docs/store.md).

A capture counts once its `_COMMIT.json` is there, and as what that says: what lies beside it is not of it. Nothing here
is trusted: it may have been copied in part, changed, or made up.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from profd.disk.files import plain
from profd.errors import BadTrace, NotFound
from profd.limits import CAPTURE_TRACES_MAX, COMMIT_BYTES_MAX, META_BYTES_MAX
from profd.model.decodable import decodable
from profd.segments.meta import FLOWS_FILE, META_FILE, TraceMeta, decode_struct, part_of, read_members, read_meta
from profd.segments.place import NULL, Absent
from profd.store.cached import CachedRollups
from profd.store.catalog import TraceRecord

COMMIT_FILE: Final = "_COMMIT.json"
FORMAT: Final = 1
_PREFIX: Final = "capture="
_READ_BYTES: Final = 1 << 20
_RANKS_MAX: Final = 1 << 31
HOSTS_NAMED_MAX: Final = 4096  # of those that nothing came from
NAME_CHARACTERS_MAX: Final = 255
WHY_CHARACTERS_MAX: Final = 1000


class Contradiction(BadTrace):
    """A trace that is as it was written, and not what it was listed as."""


class CommittedFile(msgspec.Struct, frozen=True):
    """What a file of a trace must be."""

    bytes: int
    sha256: str


class CommittedTrace(msgspec.Struct, frozen=True):
    """A trace of a capture: its directory, from that of the capture on, and all of its files."""

    trace: str
    path: str
    rank: int | None = None
    host: str | None = None
    files: dict[str, CommittedFile] = {}
    capture: str | None = None  # that it is of on its host, where the whole one is of many hosts


class CommittedAbsence(msgspec.Struct, frozen=True):
    """A process that was to be recorded, or a host that was asked, and that there is no trace of."""

    host: str | None = None
    rank: int | None = None


class Commit(msgspec.Struct, frozen=True):
    """`_COMMIT.json`: what a capture is. Written last."""

    format: int
    capture: str
    traces: list[CommittedTrace]
    missing: list[CommittedAbsence] = []


class ExportedStore:
    """All captures in a directory; answers as `Store` does what questions and lists ask. Blocking."""

    def __init__(self, root: Path, rollups: CachedRollups | None = None) -> None:
        """Reads the commits and looks at the files that they name. OSError where the directory cannot be read.

        `rollups`: where what was worked out of the traces is kept; None: nowhere.
        """
        self.root = root
        self._rollups = rollups or CachedRollups(None)
        # trace -> digest of the commit that has it, and of its files as they lay here before any was read
        self._copies: dict[str, str] = {}
        self._records: dict[str, TraceRecord] = {}
        self._directories: dict[str, Path] = {}
        self._absent: dict[str, Absent] = {}
        self._wrong: dict[str, BadTrace] = {}  # by what the directory says that it is
        self._unread: list[BadTrace] = []  # traces of captures that answer without them, and say so
        for folder in sorted(root.glob(f"{_PREFIX}*")):
            try:
                self._take(folder)
            except BadTrace as error:
                self._wrong[unquote(folder.name.removeprefix(_PREFIX))] = error

    @staticmethod
    def is_one(root: Path) -> bool:
        """Whether a directory has exported captures in it."""
        return next(root.glob(f"{_PREFIX}*"), None) is not None

    def newest_first(self, limit: int = -1) -> list[TraceRecord]:
        """The newest traces; -1 = all. BadTrace where a capture is not what it says: it would be missing."""
        self._check_all()
        found = sorted(self._records.values(), key=lambda one: (one.created_ns, one.id), reverse=True)
        return _first(found, limit)

    def newest_of(self, uid: int, limit: int) -> list[TraceRecord]:
        """The newest traces that a user owns."""
        return [one for one in self.newest_first() if one.owner_uid == uid][:limit]

    def newest_shared(self, uid: int, limit: int) -> list[TraceRecord]:
        """The newest traces of others: who has the files may read them."""
        return [one for one in self.newest_first() if one.owner_uid != uid][:limit]

    def get(self, trace: str) -> TraceRecord:
        """One trace by its whole id. NotFound, BadTrace."""
        if trace not in self._records:
            self._check_all()
            raise NotFound(
                f"There is no trace {trace!r} in {self.root}; `profctl --store {self.root} list` shows them."
            )
        return self._records[trace]

    def with_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> list[TraceRecord]:
        """The first so many whose id begins so, whoever reads.

        BadTrace where there is none, and a capture is not what it says.
        """
        found = [one for trace, one in sorted(self._records.items()) if trace.startswith(prefix)]
        if not found:
            self._check_all()
        return _first(found, limit)

    def with_capture_prefix(self, prefix: str, reader: int | None = None, limit: int = -1) -> list[TraceRecord]:
        """The same of captures whose id begins so. BadTrace where one of these is not what it says."""
        for capture, error in self._wrong.items():
            if capture.startswith(prefix):
                raise error
        found = [one for one in self._records.values() if one.capture.startswith(prefix)]
        return _first(sorted(found, key=lambda one: (one.capture, one.id)), limit)

    def directory(self, trace: str) -> Path:
        """Where a trace lies."""
        return self._directories[trace]

    def index(self, trace: str) -> Path | None:
        """Where rollups of a trace lie, if it has any; None: none are kept."""
        return self._rollups.directory(self._copies[trace], trace)

    def rollups_staging(self, traces: Sequence[TraceRecord]) -> Path | None:
        """A directory for what a job works out of these; None where nothing is kept."""
        return self._rollups.staging()

    def take_rollups(self, staging: Path, traces: Sequence[str], names: Collection[str]) -> None:
        """Keep what a job has written there. OSError."""
        folders = [folder for trace in traces if (folder := self.index(trace)) is not None]
        self._rollups.take(staging, folders, names)

    def meta(self, trace: str) -> TraceMeta:
        """Everything a trace says of itself. NotFound, BadTrace."""
        return read_meta(self._directories[self.get(trace).id])

    def check(self, trace: str) -> None:
        """Read all files of a trace. BadTrace for one whose bytes are not those that were written."""
        record = self.get(trace)
        folder = self._folder(record.capture)
        (committed,) = (one for one in _commit(folder).traces if one.trace == trace)
        for name, file in committed.files.items():
            path = self._directories[trace] / name
            if _sha256(path) != file.sha256:
                raise BadTrace(f"{path} has changed since it was written: copy it again.")

    def absent(self, capture: str) -> Absent:
        """What was asked for with a capture and is not there, as its commit says."""
        return self._absent.get(capture, Absent())

    def _folder(self, capture: str) -> Path:
        return next(one for one in self.root.glob(f"{_PREFIX}*") if unquote(one.name) == _PREFIX + capture)

    def _check_all(self) -> None:
        for error in (*self._wrong.values(), *self._unread):
            raise error

    def _take(self, folder: Path) -> None:
        commit = _commit(folder)
        if unquote(folder.name) != _PREFIX + commit.capture:
            raise BadTrace(f"{folder / COMMIT_FILE} is of the capture {commit.capture[:100]!r}: copy that one anew.")
        taken: dict[str, tuple[Path, TraceRecord]] = {}
        unread: dict[str, Contradiction] = {}
        for one in commit.traces:
            try:
                taken[one.trace] = self._taken(folder, commit.capture, one, taken)
            except Contradiction as error:
                if not one.capture or (not taken and one is commit.traces[-1]):
                    raise
                unread[one.trace] = error  # of one of many hosts, which keeps nobody from the others' traces
        self._unread += unread.values()
        self._absent[commit.capture] = _absent_of(commit, unread)
        digest = _sha256(folder / COMMIT_FILE)
        for trace, (directory, record) in taken.items():
            self._copies[trace] = f"{digest} {_copy_of(directory)}"
            self._directories[trace] = directory
            self._records[trace] = record

    def _taken(
        self, folder: Path, capture: str, one: CommittedTrace, others: Mapping[str, object]
    ) -> tuple[Path, TraceRecord]:
        """The trace, as it lies there and says of itself. BadTrace; Contradiction: it was written so."""
        if one.trace in others or one.trace in self._records:
            kind = BadTrace if one.trace in others else Contradiction
            raise kind(f"{folder} has the trace {one.trace[:100]!r}, which is there already: remove one of them.")
        directory = _checked(folder, one)
        record = _described(directory, one, capture)
        return directory, msgspec.structs.replace(record, capture=capture, host=one.host or "")


def _commit(folder: Path) -> Commit:
    path = folder / COMMIT_FILE
    try:
        with open(path, "rb", opener=plain) as file:
            text = file.read(min(os.fstat(file.fileno()).st_size, COMMIT_BYTES_MAX) + 1)
        commit = decode_struct(text if len(text) <= COMMIT_BYTES_MAX else b"", Commit)
    except FileNotFoundError as error:
        raise BadTrace(
            f"{folder} has no {COMMIT_FILE}: it was not written to its end; export the capture again."
        ) from error
    except OSError as error:
        raise BadTrace(f"{path} cannot be read ({error.strerror}): export the capture again.") from error
    except (ValueError, RecursionError) as error:
        raise BadTrace(f"{path} is damaged ({error}): export the capture again.") from error
    if commit.format > FORMAT:
        raise BadTrace(f"{path} has format {commit.format}, this profctl reads up to {FORMAT}: upgrade it.")
    if not commit.traces or len(commit.traces) > CAPTURE_TRACES_MAX:
        raise BadTrace(f"{path} names {len(commit.traces)} traces, 1 to {CAPTURE_TRACES_MAX} can be read.")
    return commit


def _absent_of(commit: Commit, unread: Mapping[str, BadTrace]) -> Absent:
    said = [
        {"rank": one.rank, "host": one.host, "trace": one.trace, "why": str(unread[one.trace])[:WHY_CHARACTERS_MAX]}
        for one in commit.traces
        if one.trace in unread
    ]
    gone = [one.rank for one in commit.missing] + [one.rank for one in commit.traces if one.trace in unread]
    ranks = [rank + 1 for rank in gone if rank is not None and 0 <= rank < _RANKS_MAX]
    there = {one.host for one in commit.traces}
    hosts = {one.host: None for one in commit.missing if one.host and one.host not in there}
    named = tuple(host[:NAME_CHARACTERS_MAX] for host in islice(hosts, HOSTS_NAMED_MAX))
    return Absent(max(ranks, default=0), named, said)


def _checked(folder: Path, one: CommittedTrace) -> Path:
    """The directory of a trace, if it is where one of these values lies, and has the files as they are named."""
    parts = one.path.split("/")
    values = {"host": one.host, "rank": one.rank, "trace": one.trace}
    expected = [f"{name}={NULL if value is None else value}" for name, value in values.items()]
    if one.rank is not None and not 0 <= one.rank < _RANKS_MAX:
        raise BadTrace(f"{folder / COMMIT_FILE} has a trace of rank {one.rank}: no job has that one.")
    if [unquote(part) for part in parts] != expected or any(part in (".", "..") for part in parts):
        raise BadTrace(
            f"{folder / COMMIT_FILE} has the trace {one.trace[:100]!r} in {one.path[:200]!r}: no export does."
        )
    directory = folder
    for part in parts:
        directory /= part
        _expect(directory, stat.S_ISDIR(_mode(directory)), "no directory")
    if META_FILE not in one.files:
        raise Contradiction(
            f"{folder / COMMIT_FILE} names no {META_FILE} of the trace {one.trace[:100]!r}: no export does."
        )
    for name, file in one.files.items():
        if "/" in name or name in (".", ".."):
            raise BadTrace(f"{folder / COMMIT_FILE} names a file {name[:100]!r}: no trace has such a one.")
        path = directory / name
        _expect(path, stat.S_ISREG(_mode(path)), "no plain file")
        size = path.lstat().st_size
        _expect(path, size == file.bytes, f"{size} bytes large, and was written with {file.bytes}")
        if name == META_FILE and size > META_BYTES_MAX:  # that one is read whole, now
            raise Contradiction(f"{path} is larger than {META_BYTES_MAX} bytes, and not written by profd.")
    _expect(
        directory / META_FILE, _sha256(directory / META_FILE) == one.files[META_FILE].sha256, "not what was written"
    )
    return directory


class _Segment(msgspec.Struct, frozen=True):
    file: str


@decodable
class _Whose(msgspec.Struct, frozen=True):
    """The part of a description that a commit has to agree with."""

    trace: str = ""
    capture: str = ""
    rank: int | None = None
    host: str = ""
    flows: int = 0
    segments: list[_Segment] = []


def _described(directory: Path, one: CommittedTrace, capture: str) -> TraceRecord:
    """What a trace says of itself, if it is what the commit says of it, and all its files are named.

    In a capture of many hosts each is called as its client does, and not as it calls itself. The rest of what it says
    may be as long as a host likes, and is not looked at: the traces of a capture are here together.
    """
    try:
        members = read_members(directory)
        meta = part_of(members, _Whose, str(directory / META_FILE))
        record = TraceRecord.of_members(one.trace, members)
    except BadTrace as error:
        raise Contradiction(str(error)) from error
    host = one.host if one.capture else meta.host or None
    said = meta.trace, meta.capture, meta.rank, host
    if said != (one.trace, one.capture or capture, one.rank, one.host):
        raise Contradiction(
            f"{directory} is of trace, capture, rank, host {said}, and its {COMMIT_FILE} says otherwise."
        )
    unnamed = {*(info.file for info in meta.segments), *([FLOWS_FILE] if meta.flows else [])} - one.files.keys()
    if unnamed:
        raise Contradiction(f"{directory} has records in {min(unnamed)}, which its {COMMIT_FILE} does not name.")
    return record


def _copy_of(directory: Path) -> str:
    """What tells these files from others that the same commit names: nobody but the kernel sets these numbers.

    Their bytes are compared on request alone, and answers about others must not be given for them.
    """
    files = sorted((path.name, path.lstat()) for path in directory.iterdir())
    told = [(name, found.st_dev, found.st_ino, found.st_ctime_ns) for name, found in files]
    return hashlib.sha256(repr((directory.resolve(), told)).encode("utf-8", "surrogatepass")).hexdigest()


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _expect(path: Path, holds: bool, otherwise: str) -> None:
    if not holds:
        raise BadTrace(f"{path} is {otherwise if _mode(path) else 'missing'}: copy the capture again.")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb", opener=plain) as file:
            while piece := file.read(_READ_BYTES):
                yield piece
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror}.") from error


def _first(records: list[TraceRecord], limit: int) -> list[TraceRecord]:
    return records if limit < 0 else records[:limit]
