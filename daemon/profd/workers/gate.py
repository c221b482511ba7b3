"""The part of the store that one worker can reach: two directories of its own.

    gates/<random>/in/<argument>/  links to the files of the trace that its job is about, and to its rollups, for as
                                   long as that runs; of several traces in <argument>s/0/, 1/ …
    gates/<random>/out/<staging>/  what its job writes; linked into the staging directory of that name when it is done
    gates/<random>/out/tmp/        its temporary files

A worker serves jobs of everybody, and its Landlock rules cannot change; so what a job needs comes to the worker.
Everything else of the store is closed to workers. Files come and go by links, since a rename from one directory into
another may wait for ever (`disk.files.rename`). The directories of links stay, empty: to remove one takes ext4 4 ms
(Linux 6.18), and to ask for tiles not much more.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import subprocess
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from profd.disk.files import disk
from profd.errors import BadInput, Exhausted, NotFound
from profd.kernel.identity import STAGING_FILES_MAX, WorkerIdentity

FOLDER: Final = "gates"  # of the state directory
_STAGING: Final = "staging"  # the argument of a job that names a directory to write
_KEPT_MAX: Final = 32  # empty directories of a worker: the end of a worker waits until they are removed


def filled(root: Path, staging: Path) -> Iterator[Path]:
    """The directory in which a worker writes the future content of this staging directory. `root`: of all gates."""
    return root.glob(f"*/out/{staging.name}")


def prepare(root: Path, who: WorkerIdentity) -> None:
    """An empty directory for gates, and a way there for workers. Raises Exhausted when the disk refuses.

    On the store's filesystem, or nothing can be linked into it. A parent that everybody may pass stays as it is.
    """
    with disk(root, "Preparing"):
        if root.exists():  # an earlier daemon's
            _remove(root)
        root.mkdir(mode=0o700)
        for path in (root, root.parent):
            if not path.stat().st_mode & stat.S_IXOTH:
                _let_pass(path, who, 0o710)


def _let_pass(path: Path, who: WorkerIdentity, mode: int) -> None:
    if who.gid is not None:
        os.chown(path, -1, who.gid, follow_symlinks=False)
        path.chmod(mode)


class Gate:
    """The directories of one worker. Blocking; one job at a time. Raises Exhausted when the disk refuses."""

    def __init__(
        self,
        root: Path,
        who: WorkerIdentity,
        directories: Collection[str] = (),
        beside: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`root`: what `prepare` has made. `directories`: arguments of jobs that name what their worker may read.

        `beside`: arguments that name what may be there besides, and with which of these: it comes into the same places.
        """
        self._who = who
        self._directories = directories
        self._beside = beside
        self.path = root / secrets.token_hex(8)
        self.incoming = self.path / "in"  # its worker may read
        self.outgoing = self.path / "out"  # its worker may change
        self.scratch = self.outgoing / "tmp"
        self._staging: Path | None = None  # what the job is to fill
        self._filled: list[Path] = []  # with links, for the job
        self._kept: set[Path] = set()  # filled or empty
        self._changing = threading.Lock()
        with disk(self.path, "Creating"):
            for path in (self.path, self.incoming, self.outgoing):
                path.mkdir(mode=0o700)
                _let_pass(path, who, 0o710)
            self._make_tmp()

    def admit(self, args: dict[str, Any]) -> dict[str, Any]:
        """Lay out what a job needs; its arguments, with the paths that the worker is to use.

        Raises NotFound when a trace has been removed.
        """
        with self._changing, disk(self.path, "Preparing"):
            self._clear()
            admitted = dict(args)
            for name in self._directories:
                if name in args:
                    admitted[name] = self._let_in(args[name], self.incoming / name)
            for name, other in self._beside.items():
                if name in args:
                    admitted[name] = admitted[other]
                    for index, link in zip(_listed(args[name]), _listed(admitted[other]), strict=True):
                        _link_if_there(Path(index), Path(link))
            if _STAGING in args:
                admitted[_STAGING] = str(self._open(Path(args[_STAGING])))
            return admitted

    def dismiss(self, *, done: bool) -> None:
        """Take everything back. Where the job is `done`, its staging directory has then what it has written.

        Raises BadInput for something that no trace has, Exhausted for too many files.
        """
        with self._changing, disk(self.path, "Clearing"):
            try:
                if done and self._staging is not None:
                    self._hand_over(self.outgoing / self._staging.name, self._staging)
            finally:
                self._clear()

    def scratch_bytes(self) -> int:
        """Bytes on the disk of its temporary files, as far as they have names. In any thread."""
        found = 0
        with contextlib.suppress(OSError):
            for _, _, files, place in os.fwalk(self.scratch):
                for name in files:
                    with contextlib.suppress(OSError):
                        found += os.stat(name, dir_fd=place, follow_symlinks=False).st_blocks * 512
        return found

    def remove(self) -> None:
        """The worker is gone."""
        with self._changing:
            _remove(self.path)

    def _let_in(self, traces: str | list[str], place: Path) -> str | list[str]:
        """One directory in this place, or several below it."""
        if isinstance(traces, str):
            return str(self._link(Path(traces), place))
        several = place.with_name(f"{place.name}s")
        if not several.exists():
            several.mkdir(mode=0o700)
            _let_pass(several, self._who, 0o710)
        return [str(self._link(Path(trace), several / str(number))) for number, trace in enumerate(traces)]

    def _link(self, trace: Path, link: Path) -> Path:
        if link not in self._kept:
            link.mkdir(mode=0o700)
        self._filled.append(link)
        try:
            for entry in os.scandir(trace):
                if entry.is_file(follow_symlinks=False):
                    os.link(entry.path, link / entry.name, follow_symlinks=False)
        except FileNotFoundError as error:
            raise NotFound(f"Trace {trace.name} has just been removed.") from error
        _let_pass(link, self._who, 0o750)
        return link

    def _open(self, staging: Path) -> Path:
        here = self.outgoing / staging.name
        here.mkdir(mode=0o700)
        _let_pass(here, self._who, 0o770)
        self._staging = staging
        return here

    def _hand_over(self, here: Path, staging: Path) -> None:
        """By descriptor: a worker with our uid could put a link in the place of its directory."""
        folder = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with os.scandir(folder) as entries:
                for count, entry in enumerate(entries):
                    if count >= STAGING_FILES_MAX:
                        raise Exhausted(f"{here} holds more than {STAGING_FILES_MAX} files; no trace needs that many")
                    _link(entry.name, folder, staging)
        finally:
            os.close(folder)

    def _clear(self) -> None:
        self._staging = None
        while self._filled:
            self._empty(self._filled[-1])
            self._filled.pop()
        for left in self.outgoing.iterdir():
            if left != self.scratch or not _is_empty(left):
                _remove(left)
        self._make_tmp()

    def _empty(self, place: Path) -> None:
        """Take all links out of a directory; some directories are kept."""
        if place in self._kept or len(self._kept) < _KEPT_MAX:
            with contextlib.suppress(OSError):  # a worker with our uid put something else there
                _unlink_all(place)
                self._kept.add(place)
                return
        self._kept.discard(place)
        _remove(place)

    def _make_tmp(self) -> None:
        if self.scratch.exists():
            return
        self.scratch.mkdir(mode=0o700)
        if self._who.uid is not None and self._who.gid is not None:
            os.chown(self.scratch, self._who.uid, self._who.gid, follow_symlinks=False)


def _unlink_all(place: Path) -> None:
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                os.unlink(entry.name, dir_fd=folder)
    finally:
        os.close(folder)


def _link(name: str, folder: int, staging: Path) -> None:
    try:
        os.link(name, staging / name, src_dir_fd=folder, follow_symlinks=False)
    except PermissionError as error:  # a directory, or a link where we may not name it anew
        raise BadInput(f"The worker left {name!r}, which is no file of a trace: it was not stored.") from error


def _listed(place: str | list[str]) -> list[str]:
    return [place] if isinstance(place, str) else place


def _link_if_there(index: Path, link: Path) -> None:
    """Files may come and go meanwhile: who does not find one does without."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(index):
            with contextlib.suppress(FileNotFoundError):
                os.link(index / name, link / name, follow_symlinks=False)


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path, ignore_errors=True)
    except RecursionError:  # deeper than Python goes, and so nothing of ours; rm(1) goes as deep as there is
        subprocess.run(["rm", "-rf", "--", path], stdin=subprocess.DEVNULL, capture_output=True, check=False)
