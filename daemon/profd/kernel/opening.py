"""Opening files: openat2(2), which Python does not have, and who may open one."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import Final

_SYS_OPENAT2: Final = 437  # the same on every architecture
_RESOLVE_CACHED: Final = 0x20  # Linux 5.12
_TRIES: Final = 4
_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t)
_syscall.restype = ctypes.c_long
_OPEN_HOW: Final = struct.Struct("=QQQ")  # flags, mode, resolve
_PATH: Final = os.O_PATH | os.O_NOFOLLOW


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """A descriptor of `path`, seen from a directory; `resolve`: RESOLVE_*. OSError as open(2)."""
    how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, resolve)
    descriptor = _syscall(_SYS_OPENAT2, directory, os.fsencode(path), how, len(how))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(descriptor)


def open_known(directory: int, name: str) -> int:
    """An O_PATH descriptor of a name that the kernel remembers, as it does the name of every socket that is bound.

    Waits for nobody: a look for a name that it does not remember takes the directory's lock, which somebody may keep.
    OSError, FileNotFoundError where it does not remember the name: no socket that is bound has it then.
    NotImplementedError where it cannot be asked so (before Linux 5.12).
    """
    for _ in range(_TRIES):
        try:
            return openat2(directory, name, _PATH, _RESOLVE_CACHED)
        except BlockingIOError:  # also where something beside it has just been renamed
            continue
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EPERM):  # an old kernel, or a container's filter
                raise
            raise NotImplementedError("openat2(RESOLVE_CACHED)") from error
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def may_open(found: os.stat_result, uid: int, gid: int) -> bool:
    """Whether this identity may read a file, or enter a folder, by its mode alone."""
    need = stat.S_IXOTH if stat.S_ISDIR(found.st_mode) else stat.S_IROTH
    if found.st_uid == uid:
        need <<= 6
    elif found.st_gid == gid:
        need <<= 3
    return bool(found.st_mode & need)
