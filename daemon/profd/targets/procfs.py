"""Bounded reads of /proc, and the parsing of its two stable files.

Everything here belongs to processes that may be hostile and may vanish at any
moment: a read that fails for either reason is None, never an exception.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STAT_BYTES: Final = 4096
STATUS_BYTES: Final = 16384
COMMAND_BYTES: Final = 8192
ENVIRON_BYTES: Final = 1 << 20
MAPS_BYTES: Final = 32 << 20
CGROUP_BYTES: Final = 16384
DESCRIPTORS_LISTED: Final = 4096  # of one process, when looking for GPUs

_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD in field 9 of stat
_EXITING: Final = 0x00000004  # PF_EXITING: it has no memory any more, or is about to give it back
_STAT_FIELDS: Final = 26  # after the command name; field 28 of proc(5) is the last that there has to be


def read(path: Path, limit: int) -> bytes | None:
    """At most `limit` bytes of a /proc file; None if it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        parts: list[bytes] = []
        have = 0
        while have < limit:
            part = os.read(fd, min(limit - have, 1 << 16))
            if not part:
                break
            parts.append(part)
            have += len(part)
        return b"".join(parts)
    except OSError:  # ESRCH: it ended between open and read
        return None
    finally:
        os.close(fd)


def read_record(path: Path | str, limit: int) -> bytes | None:
    """As `read`, for the files that the kernel hands out whole in one read: stat and status."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def link(path: Path) -> str:
    """Where a /proc link points, empty if it is gone or not ours to read."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def printable(raw: bytes, limit: int) -> str:
    """Text that cannot play with a terminal: what is not printable becomes U+FFFD."""
    text = raw.decode("utf-8", "replace")[:limit]
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


@dataclass(frozen=True, slots=True)
class Stat:
    """What is used of /proc/PID/stat. `cpu_ticks` is user plus system time, `vsize` is in bytes."""

    state: str
    ppid: int
    start_ticks: int
    cpu_ticks: int
    vsize: int
    image: tuple[str, int]  # command name and stack base: both change with exec, a pid does not
    kernel_thread: bool
    exiting: bool
    layout: tuple[int, ...]  # where its code, data, heap and stack begin; zeros and ones where that is not ours to know


def parse_stat(raw: bytes) -> Stat | None:
    """Parse stat. The command name is the process's own choice and may hold `)` and spaces."""
    opening, closing = raw.find(b"("), raw.rfind(b")")
    fields = raw[closing + 1 :].split()
    if opening < 0 or closing < opening or len(fields) < _STAT_FIELDS:
        return None
    try:
        return Stat(
            state=fields[0].decode("ascii"),
            ppid=int(fields[1]),
            start_ticks=int(fields[19]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            vsize=int(fields[20]),
            image=(printable(raw[opening + 1 : closing], 64), int(fields[25])),
            kernel_thread=bool(int(fields[6]) & _KERNEL_THREAD),
            exiting=bool(int(fields[6]) & _EXITING),
            layout=tuple(map(int, fields[23:26] + fields[42:45])),
        )
    except ValueError:
        return None


def stat_of(pid: int, root: Path | str = "/proc") -> Stat | None:
    """What stat says of a process now; None if there is none, or it says nothing that could be understood."""
    raw = read_record(f"{root}/{pid}/stat", STAT_BYTES)
    return None if raw is None else parse_stat(raw)


@dataclass(frozen=True, slots=True)
class Status:
    """What is used of /proc/PID/status."""

    uid: int
    gid: int
    namespace_pids: tuple[int, ...]
    tracer: int  # pid of a ptrace tracer, 0 for none
    uids: tuple[int, ...]  # real, effective, saved, filesystem
    gids: tuple[int, ...]


def parse_status(raw: bytes) -> Status | None:
    """Parse status; None if it does not say who owns the process."""
    try:
        uids, gids = _numbers(raw, b"Uid"), _numbers(raw, b"Gid")
        return Status(
            # One that runs with another group's rights, too, is not for its user to look into.
            uid=_owner(uids) if len(set(gids[:3])) == 1 else 0,
            gid=_owner(gids),
            namespace_pids=_numbers(raw, b"NSpid"),
            tracer=next(iter(_numbers(raw, b"TracerPid")), 0),
            uids=uids,
            gids=gids,
        )
    except ValueError:
        return None


def status_of(pid: int, root: Path | str = "/proc") -> Status | None:
    """The same of status."""
    raw = read_record(f"{root}/{pid}/status", STATUS_BYTES)
    return None if raw is None else parse_status(raw)


def files_of(pid: int, root: Path | str = "/proc") -> int:
    """Whose the files of a process are: its user's, or root's where it is not dumpable. OSError if it has ended."""
    # Not of the directory above it, which is the user's in any case.
    return os.stat(f"{root}/{pid}/stat").st_uid


def _numbers(raw: bytes, name: bytes) -> tuple[int, ...]:
    """Of one line of status; none where there is no such line. ValueError where they are no numbers."""
    # The kernel escapes newlines in the command name, which is the process's own choice.
    line = raw.partition(b"\n" + name + b":")[2].partition(b"\n")[0]
    return tuple(map(int, line.split()))


def _owner(ids: tuple[int, ...]) -> int:
    """Real, effective, saved, filesystem id -> whose process it is to us.

    A program that runs with two identities belongs to the more powerful one, as
    for ptrace(2): the user who started a setuid program may not look into it.
    """
    real, effective, saved = ids[:3]
    if real == effective == saved:
        return real
    return 0 if 0 in (real, effective, saved) else effective
