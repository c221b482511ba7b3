"""A capture as a directory of Parquet files that any engine reads (docs/store.md): written here, as the user.

    DIR/capture=<id>/host=<h>/rank=<r>/trace=<t>/  the files of a trace, as the store has them
    DIR/capture=<id>/_COMMIT.json                  names, bytes and SHA-256 of all of them, written last

A capture of many hosts has traces of all of these in it: `host` is as its client calls each, and a row of the commit
has the `capture` of the trace on its host.

Nothing is seen of it before it is whole: it is written beside, and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final
from urllib.parse import quote

from profclient.errors import ClientError, UsageError
from profclient.inside import Inside

COMMIT_FILE: Final = "_COMMIT.json"
FORMAT: Final = 1
NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # how engines write that there is no value
NAME_BYTES_MAX: Final = 255  # of a directory
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MANIFEST: Final = "MANIFEST.json"
_OF_BUNDLE: Final = ("profd-bundle", _MANIFEST)  # no files of a trace
_COPY_BYTES: Final = 1 << 20
FILES_MAX: Final = 65_536  # of a bundle; a trace has one for each million events, and a capture 256 traces
_MANIFEST_ROOM: Final = 4096  # beside what it has to say of each file, however it is laid out
_ORIGIN: Final = ("host", "rank", "trace")


def partition(name: str, value: object) -> str:
    """`name=value` as the name of a directory: all but letters, digits and `_-.~` as %XX. UsageError: too long."""
    text = f"{name}={NULL if value is None else quote(str(value), safe='', errors='surrogatepass')}"
    if len(text) > NAME_BYTES_MAX:
        raise UsageError(f"the {name} {str(value)[:60]!r}… is too long for the name of a directory.")
    return text


class CaptureFolder:
    """The directory of a capture while it is written: beside its place; `commit` gives it its name.

    Its methods raise UsageError where it is there already or cannot be written.
    """

    def __init__(self, into: Path, capture: str) -> None:
        self.into = into
        self._capture = capture
        self.final = into / partition("capture", capture)
        self._name = f".{self.final.name}.{os.getpid()}.part"
        self._above = -1  # `into`, open
        self._inside: Inside

    def __enter__(self) -> CaptureFolder:
        if self.final.exists():
            raise UsageError(f"{self.final} is there already: remove it, or name another directory.")
        with self._writing(), contextlib.ExitStack() as undo:
            self.into.mkdir(parents=True, exist_ok=True)
            self._above = os.open(self.into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, self._above)
            os.mkdir(self._name, dir_fd=self._above)
            self._inside = Inside(self._above, self._name)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._name, ignore_errors=True, dir_fd=self._above)
        self._inside.close()
        os.close(self._above)

    @property
    def partial(self) -> Path:
        """Where it is written, as this process alone can name it."""
        return self._inside.path

    def add(self, traces: Sequence[Mapping[str, Any]], bundle: Iterator[bytes]) -> list[dict[str, Any]]:
        """Write the traces (`host`, `rank`, `trace`, and what else the commit is to say) of a bundle that has them all.

        Returns their rows of the commit. ClientError for a bundle that is damaged.
        """
        places = {str(one["trace"]): _place(one) for one in traces}
        try:
            with self._writing():
                files = unpack(bundle, self._inside, places)
        except (tarfile.TarError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ClientError(f"the capture arrived damaged ({error}): export it again.") from error
        return [{**one, "path": places[str(one["trace"])], "files": files[str(one["trace"])]} for one in traces]

    def remove(self, path: str) -> None:
        """What was added at this `path` of a row, which no row of the commit is to have."""
        with self._writing():
            self._inside.remove(path)

    def commit(self, traces: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        """All traces are there: what `_COMMIT.json` says."""
        said = {"format": FORMAT, "capture": self._capture, "traces": traces, **more}
        with self._writing():
            with self._inside.create(COMMIT_FILE) as file:
                file.write(json.dumps(said).encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
            self._inside.sync()
            os.rename(self._name, self.final.name, src_dir_fd=self._above, dst_dir_fd=self._above)
            os.fsync(self._above)
        return said

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(f"{self.into} cannot be written: {error.strerror}.") from error


def write_capture(
    into: Path, capture: str, traces: Sequence[Mapping[str, Any]], bundle: Iterator[bytes]
) -> tuple[Path, int]:
    """The directory of a capture of one host, and its bytes. `bundle`: of all its traces (`export -f bundle`).

    Raises UsageError where it is there already or cannot be written, ClientError for a bundle that is damaged.
    """
    with CaptureFolder(into, capture) as folder:
        rows = folder.add([{name: one[name] for name in _ORIGIN} for one in traces], bundle)
        folder.commit(rows)
    return folder.final, bytes_of(rows)


def bytes_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """The bytes of all files that these rows of a commit name."""
    return sum(file["bytes"] for one in rows for file in one["files"].values())


def _place(trace: Mapping[str, Any]) -> str:
    return "/".join(partition(name, trace[name]) for name in _ORIGIN)


def unpack(pieces: Iterator[bytes], inside: Inside, places: Mapping[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """The files of a bundle of these traces, each trace in its own new directory, synced: {trace: {name: what it has}}.

    ustar without extensions, whose headers may be as long as they like. ValueError for what is no file of these traces,
    where one has none or there are too many, and where its manifest says otherwise.
    """
    found: dict[str, dict[str, Any]] = {}
    files: dict[str, dict[str, dict[str, Any]]] = {trace: {} for trace in places}
    for folder in places.values():
        inside.make(folder)
    archive = _Stream(pieces)
    while True:
        header = _header(archive)
        trace, _, name = header.name.rpartition("/")
        known = name in _OF_BUNDLE if not trace else trace in places and _NAME.fullmatch(name)
        if not known or header.name in found or len(found) >= FILES_MAX:
            raise ValueError(f"{header.name[:100]!r} is no file of a trace")
        if name == _MANIFEST:
            _compare(archive, header.size, found)
            break
        found[header.name] = _copied(archive, header.size, inside.create(f"{places[trace]}/{name}") if trace else None)
        if trace:
            files[trace][name] = found[header.name]
    for trace, of_trace in files.items():
        if not of_trace:
            raise ValueError(f"it has no trace {trace}")
    above = (str(place) for folder in places.values() for place in PurePosixPath(folder).parents)
    for place in dict.fromkeys((*places.values(), *above)):
        inside.sync("" if place == "." else place)
    return files


def _header(archive: _Stream) -> tarfile.TarInfo:
    """Of the next member, a plain file."""
    block = archive.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE or not any(block):
        raise ValueError("it ends before its manifest")
    header = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    if header.type != tarfile.REGTYPE or header.linkname or header.size < 0:
        raise ValueError(f"{header.name[:100]!r} is no file of a trace")
    return header


def _compare(archive: _Stream, size: int, found: Mapping[str, Any]) -> None:
    """The manifest says what was found; what is longer than that takes is not read."""
    if size > 2 * len(json.dumps(found)) + _MANIFEST_ROOM or json.loads(archive.read(size))["files"] != found:
        raise ValueError("it is not what its manifest says")


def _copied(archive: _Stream, left: int, into: BinaryIO | None) -> dict[str, Any]:
    """Copy the contents and skip the padding."""
    digest, size = hashlib.sha256(), left
    with open(os.devnull, "wb") if into is None else into as file:
        while left:
            piece = archive.read(min(_COPY_BYTES, left))
            if not piece:
                raise ValueError("it ends within a file")
            file.write(piece)
            digest.update(piece)
            left -= len(piece)
        if into is not None:
            file.flush()
            os.fsync(file.fileno())
    archive.read(-size % tarfile.BLOCKSIZE)
    return {"bytes": size, "sha256": digest.hexdigest()}


class _Stream:
    """Pieces as a file that is read from the front."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        """So many bytes, or what is left."""
        while len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        found, self._rest = self._rest[:size], self._rest[size:]
        return found
