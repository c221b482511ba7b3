"""What an identity may do with a file or folder by its mode and access list, as the kernel would decide it (acl(5))."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Collection
from typing import Final

READ, WRITE, PASS = 4, 2, 1  # PASS: of a folder, to go through it
_LIST: Final = "system.posix_acl_access"
_VERSION: Final = struct.pack("<I", 2)
_ENTRY: Final = struct.Struct("<HHI")  # tag, what is allowed, whose
_USER, _OUR_GROUP, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_LINKS_MAX: Final = 40  # as the kernel follows in one path
_INNER: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def may(descriptor: int, need: int, uid: int, gids: Collection[int]) -> bool:
    """Whether these rights are this identity's; `descriptor` may be one of O_PATH. Raises OSError.

    uid 0 may all. Capabilities, and file systems with rules of their own, are not known.
    """
    found = os.fstat(descriptor)
    if uid == 0:
        return True
    if found.st_uid == uid:
        return found.st_mode >> 6 & need == need
    entries = _entries(descriptor)
    if not entries:
        return found.st_mode >> (3 if found.st_gid in gids else 0) & need == need
    mask = next((allowed for tag, allowed, _ in entries if tag == _MASK), 7)
    for tag, allowed, whose in entries:
        if tag == _USER and whose == uid:
            return allowed & mask & need == need
    groups = [
        allowed & mask
        for tag, allowed, whose in entries
        if (tag == _OUR_GROUP and found.st_gid in gids) or (tag == _GROUP and whose in gids)
    ]
    return any(allowed & need == need for allowed in groups) if groups else found.st_mode & need == need


def finds(path: bytes, uid: int, gids: Collection[int]) -> bool:
    """Whether this identity gets to anything by an absolute path, through links as well. May wait for a file system.

    Nothing is told of what lies beyond a folder that it may not pass, nor by links of /proc, which are others'.
    """
    parts, links = path.split(b"/")[::-1], 0
    here = os.open("/", _INNER)
    try:
        processes = os.stat("/proc").st_dev
        while parts:
            part = parts.pop()
            if part in (b"", b"."):
                continue
            if os.fstat(here).st_dev == processes or not may(here, PASS, uid, gids):
                return False
            inner = _inner(here, part)
            if stat.S_ISLNK(os.fstat(inner).st_mode):
                leads_to = _where(inner)
                if (links := links + 1) > _LINKS_MAX:
                    return False
                parts += leads_to.split(b"/")[::-1]
                inner = os.open("/" if leads_to.startswith(b"/") else ".", _INNER, dir_fd=here)
            os.close(here)
            here = inner
        return True
    except OSError:
        return False
    finally:
        os.close(here)


def _inner(folder: int, name: bytes) -> int:
    try:
        return os.open(name, _INNER | os.O_DIRECTORY, dir_fd=folder)
    except NotADirectoryError:
        return os.open(name, _INNER, dir_fd=folder)


def _where(link: int) -> bytes:
    """Its text; the descriptor is closed."""
    try:
        return os.readlink(b"", dir_fd=link)
    finally:
        os.close(link)


def _entries(descriptor: int) -> list[tuple[int, int, int]]:
    """Of its access list, none where it has none. All of them, 8,191 at most: the last ones bound the others."""
    try:
        raw = os.getxattr(f"/proc/self/fd/{descriptor}", _LIST)
    except OSError:
        return []
    if not raw.startswith(_VERSION) or (len(raw) - len(_VERSION)) % _ENTRY.size:
        return []
    return list(_ENTRY.iter_unpack(raw[len(_VERSION) :]))
