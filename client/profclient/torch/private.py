"""A user's own folder for builds, opened so that nobody else can have another one written, by a link or a swap."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from profclient.errors import DeniedError, UsageError
from profclient.owners import open_above

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BY_HAND: Final = "profctl torch build --into DIR builds it elsewhere"


@contextlib.contextmanager
def place(base: Path) -> Iterator[Path]:
    """`profd/torch` in a user's cache, made if it is absent: a path for this process and those it starts.

    Each directory from the cache on has to be this user's and writable by nobody else, and no link; nothing is written
    before that is known, nor where a process would not load it (`builds.find`). Raises DeniedError, UsageError.
    """
    with contextlib.ExitStack() as opened:
        try:
            cache = _opened(opened, base)
            if above := open_above(str(base)):
                raise DeniedError(f"{base} can be exchanged by another user, by {above}: {_BY_HAND}")
            profd = _below(opened, cache, "profd", base)
            os.fchmod(_below(opened, profd, "torch", base / "profd"), 0o700)
        except OSError as error:
            raise UsageError(f"{base}/profd/torch cannot be written: {error.strerror or error}: {_BY_HAND}") from None
        # By the descriptor of the one above, in which nobody else can put another `torch`: what is looked at in the
        # path is then a directory and no link.
        os.set_inheritable(profd, True)
        yield Path(f"/proc/self/fd/{profd}/torch")


def _opened(opened: contextlib.ExitStack, base: Path) -> int:
    """The cache. It is made where only its parent is there; the way to it may lead over links."""
    try:
        return _own(opened, os.open(base, _DIRECTORY), base)
    except FileNotFoundError:
        parent = _own(opened, os.open(base.parent, _DIRECTORY), base.parent)
    return _below(opened, parent, base.name, base.parent)


def _below(opened: contextlib.ExitStack, above: int, name: str, path: Path) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    try:
        return _own(opened, os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above), path / name)
    except NotADirectoryError:  # also for a link, with O_DIRECTORY
        raise DeniedError(f"{path / name} is no directory, or a symbolic link: {_BY_HAND}") from None


def opened(until: contextlib.ExitStack, path: Path) -> int:
    """A directory of this user's, open as long as `until` is. Raises DeniedError for another's or a link, OSError."""
    try:
        return _own(until, os.open(path, _DIRECTORY | os.O_NOFOLLOW), path)
    except NotADirectoryError:
        raise DeniedError(f"{path} is no directory, or a symbolic link: {_BY_HAND}") from None


def _own(opened: contextlib.ExitStack, descriptor: int, path: Path) -> int:
    opened.callback(os.close, descriptor)
    info = os.fstat(descriptor)
    if info.st_uid != os.geteuid():
        raise DeniedError(f"{path} belongs to uid {info.st_uid} and not to uid {os.geteuid()}: {_BY_HAND}")
    if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DeniedError(f"{path} is writable by others (mode {stat.S_IMODE(info.st_mode):04o}): chmod go-w {path}")
    return descriptor
