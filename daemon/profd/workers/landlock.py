"""Landlock bounds the files that a process may open, whatever its uid may; it forbids TCP and signals to others.

The answer says which of these the running kernel offers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from typing import Final

FILES: Final = "files by Landlock"

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls: the same numbers everywhere
_VERSION: Final = 1  # flag of _CREATE: which ABI is there
_PATH_BENEATH: Final = 1

_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = (
    1 << bit for bit in (1, 2, 3, 4, 5, 7, 8)
)
_REFER, _TRUNCATE = 1 << 13, 1 << 14  # from ABI 2 and 3
_OF_FILES: Final = _READ_FILE  # the rest means nothing for a file
_READ: Final = _READ_FILE | _READ_DIR
_CHANGE: Final = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
# ABI -> how many rights on files it knows (bits from 0)
_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_RIGHTS_NOW: Final = 16  # from 5 on: ioctl of devices
_TCP: Final = 0b11  # bind, connect
_SCOPES: Final = 0b11  # abstract sockets, signals

_libc = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The version of Landlock that the kernel offers; 0: none."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, _VERSION)))


def restrict(read: Iterable[str], change: Iterable[str]) -> list[str]:
    """Leave this thread, and all it starts, these directories and files. Returns what holds now.

    Paths of `read` that do not exist or cannot be reached are left out; those of `change` must exist. Needs
    no_new_privs. Raises OSError.
    """
    version = abi()
    if not version:
        return []
    handled = (1 << _RIGHTS.get(version, _RIGHTS_NOW)) - 1
    attributes = struct.pack("=QQQ", handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    rules = _call(_CREATE, attributes, 24 if version >= 6 else 16 if version >= 4 else 8, 0)
    try:
        for path in read:
            with contextlib.suppress(FileNotFoundError, PermissionError, NotADirectoryError):
                _allow(rules, path, _READ & handled)
        for path in change:
            _allow(rules, path, _CHANGE & handled)
        _call(_RESTRICT, rules, 0)
    finally:
        os.close(rules)
    held = [FILES]
    if version >= 4:
        held.append("no TCP")
    if version >= 6:
        held.append("no abstract sockets")
        held.append("no signals to others")
    return held


def _allow(rules: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _OF_FILES
        _call(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: int | bytes) -> int:
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc.syscall(number, *whole))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result
