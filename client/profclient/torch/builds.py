"""Builds of the observer: what each is for, where they lie, and which may be loaded.

A build belongs to one torch: its layouts are compiled in, and a wrong one misreads memory. So it lies in a directory
named for torch's version, its git version, the C++ ABI, the architecture and our own sources, says the same itself
(`profd_torch_build`), and is loaded only by a process whose torch says the same too. A file that another user could
have written is not loaded. This module is imported inside targets: it brings nothing that torch has not brought.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import stat
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from profclient.folders import cache_folder
from profclient.owners import are_ours, open_above
from profclient.torch import sources

LIBRARY: Final = "observer.so"
CUDA_LIBRARY: Final = "observer_cuda.so"
MANIFEST: Final = "build.json"
DIRECTORY_VARIABLE: Final = "PROFD_TORCH_DIR"
_LIBRARY_BYTES_MAX: Final = 64 << 20
_MANIFEST_BYTES_MAX: Final = 64 << 10


class Unusable(Exception):
    """A build that is there and must not be loaded; str() says why."""


@dataclass(frozen=True, slots=True)
class Key:
    """The torch that a build is for."""

    torch: str  # torch.__version__
    git: str  # torch.version.git_version
    cxx11_abi: bool
    machine: str
    sources: str  # digest of ours

    @property
    def text(self) -> str:
        """The build's account of itself."""
        abi = "cxx11" if self.cxx11_abi else "cxx98"
        return f"torch {self.torch} {self.git} {abi} {self.machine} profd {self.sources}"

    @property
    def directory(self) -> str:
        """Name of its directory."""
        return "-".join(("torch", self.torch, self.git[:12], self.machine, self.sources)).replace("/", "_")


@dataclass(frozen=True, slots=True)
class Build:
    """One build that was found."""

    path: Path  # of its directory
    key: Key
    sha256: str
    python: str  # for whose torch it was made
    compiler: str
    made: str  # ISO time
    cuda_sha256: str = ""  # of the part for a torch with CUDA; empty: there is none
    without_cuda: str = ""  # why there is none, where torch has CUDA

    @property
    def library(self) -> Path:
        """The shared object."""
        return self.path / LIBRARY

    @property
    def cuda_library(self) -> Path:
        """Its part for CUDA, if there is one."""
        return self.path / CUDA_LIBRARY


@functools.cache
def key_of(torch: Any) -> Key:
    """The key of a build for this imported torch.

    Kept: the daemon is told of it when torch is imported, and at the next arm nothing has to be read, where every
    file costs the job a switch of the GIL.
    """
    return Key(
        str(torch.__version__),
        str(torch.version.git_version),
        bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        platform.machine(),
        sources.digest(),
    )


def cache() -> Path:
    """The folder for this user's builds by `profctl torch build`."""
    return cache_folder() / "torch"


def places() -> list[Path]:
    """Folders of builds, best first: PROFD_TORCH_DIR, this Python's prefix, /usr/local, the user's cache."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    return [*([Path(given)] if given else []), *_fixed(), cache()]


def _fixed() -> list[Path]:
    """The places that nothing in the environment names."""
    return [Path(sys.prefix) / "lib" / "profd" / "torch", Path("/usr/local/lib/profd/torch")]


def find(key: Key) -> Build | None:
    """The build for this torch; None if there is none. Raises Unusable when one is there that must not be loaded."""
    for place in places():
        directory = place / key.directory
        if os.path.isdir(directory):  # not, too, where HOME is of another user, as `su -m` and containers leave it
            build = read(directory)
            check(build, key)
            _check_way(place, directory)
            return build
    return None


def entries(place: Path, prefix: str) -> list[Path]:
    """What lies there with such names, sorted. Nothing where the place is not ours to look at: see `find`."""
    try:
        return sorted(place.glob(f"{prefix}*"))
    except OSError:
        return []


def _check_way(place: Path, directory: Path) -> None:
    """Raises Unusable where the environment, which may be that of the caller of su, leads to what another user can
    exchange between the look at a build and its loading, which may be hours later.
    """
    base = place.parent.parent if place == cache() else place
    if place in _fixed() or are_ours(str(base), *place.relative_to(base).parts):
        return
    raise Unusable(
        f"{directory} can be exchanged by another user, by {open_above(str(directory)) or base}: set "
        f"{DIRECTORY_VARIABLE}, XDG_CACHE_HOME and HOME to folders of your own"
    )


def read(directory: Path) -> Build:
    """A build's word about itself, unchecked. Raises Unusable."""
    try:
        raw = _read_regular(directory / MANIFEST, _MANIFEST_BYTES_MAX)
        said = json.loads(raw)
        key = Key(**said.pop("key"))
        return Build(directory, key, **said)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Unusable(
            f"{directory} is no build of the observer ({error}), make it again: profctl torch build"
        ) from None


def write_manifest(build: Build) -> None:
    """Put what is known about a build beside it."""
    said = asdict(build)
    del said["path"]
    (build.path / MANIFEST).write_text(json.dumps(said, indent=1) + "\n")


def check(build: Build, key: Key) -> None:
    """Raises Unusable unless the build is for `key`, nobody else could have written it, and it is whole."""
    if build.key != key:
        raise Unusable(f"{build.path} was made for {build.key.text}, and this is {key.text}: profctl torch build")
    for path in (build.path.parent, build.path):
        _check_owner(path)
    _check_library(build.library, build.sha256)
    if build.cuda_sha256:
        _check_library(build.cuda_library, build.cuda_sha256)


def _check_library(library: Path, sha256: str) -> None:
    _check_owner(library)
    if digest_of(library) != sha256:
        raise Unusable(f"{library} is not what was built there (its SHA-256 differs): profctl torch build")


def digest_of(library: Path) -> str:
    """SHA-256 of a library. Raises OSError, Unusable."""
    return hashlib.sha256(_read_regular(library, _LIBRARY_BYTES_MAX)).hexdigest()


def _check_owner(path: Path) -> None:
    try:
        info = path.lstat()
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from None
    if info.st_uid not in (0, os.geteuid()):
        raise Unusable(f"{path} belongs to uid {info.st_uid}, and only builds of root and of this user are loaded")
    if stat.S_ISLNK(info.st_mode):
        raise Unusable(f"{path} is a symbolic link, which is not followed")
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Unusable(f"{path} is writable by others (mode {stat.S_IMODE(info.st_mode):04o}): chmod go-w {path}")


def _read_regular(path: Path, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > most:
            raise ValueError(f"{path.name} is no regular file of at most {most} bytes")
        return file.read(most)
