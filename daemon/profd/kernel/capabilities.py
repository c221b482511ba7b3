"""Capabilities of a process: as /proc tells them, and this one's to give up.

One that is kept guards a child that has its user's uid: who does not hold all that another process may use is refused
by the kernel's check of ptrace(2), which is also that of `/proc/PID/fd` and `mem` and of pidfd_getfd(2).
"""

# Launchers import this: nothing here needs typing.

from __future__ import annotations

import ctypes
import os
import struct

CHOWN = 0  # of all the one that is worth nothing behind a filter without the four calls
BPF = 39
GUARD = 1 << CHOWN

_ALL = 64
_VERSION_3 = 0x20080522
_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_PR_CAP_AMBIENT_CLEAR_ALL = 4

_libc = ctypes.CDLL(None, use_errno=True)


def effective(status: str) -> int | None:
    """The capabilities in effect, as bits, by the text of /proc/PID/status; None where it does not say."""
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return None


def permitted() -> int:
    """The capabilities of this process, as bits. Raises OSError."""
    return _held()[0]


def hold(permitted: int, effective: int, inheritable: int = 0) -> None:
    """Give up all others. Raises OSError."""
    halves = [value >> shift & 0xFFFFFFFF for shift in (0, 32) for value in (effective, permitted, inheritable)]
    _must(_libc.capset(struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", *halves)))


def give_up(capability: int) -> None:
    """One of them, for this thread and all that it begins from now on, whatever that executes. Raises OSError."""
    permitted, effective, inheritable = (held & ~(1 << capability) for held in _held())
    if permitted == _held()[0]:
        return
    hold(permitted, effective, inheritable)  # what is not inheritable is not ambient either
    if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:  # without CAP_SETPCAP
        _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))  # else root would have it again by exec


def bound(kept: int) -> None:
    """None but these can be had again."""
    for capability in range(_ALL):
        if not kept >> capability & 1:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EPERM without CAP_SETPCAP: no_new_privs covers it
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def become(uid: int, gid: int) -> None:
    """Another identity for good, which keeps what is permitted for the moment. Raises OSError."""
    _must(_libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def keep(kept: int) -> None:
    """These alone, for this process and for whatever it becomes. Raises OSError."""
    hold(kept, kept, kept)
    for capability in range(_ALL):
        if kept >> capability & 1:
            _must(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0))


def _held() -> tuple[int, int, int]:
    """Permitted, effective and inheritable ones."""
    data = ctypes.create_string_buffer(24)
    _must(_libc.capget(struct.pack("=Ii", _VERSION_3, 0), data))
    effective, permitted, inheritable, *high = struct.unpack("=6I", data.raw)
    return permitted | high[1] << 32, effective | high[0] << 32, inheritable | high[2] << 32


def _must(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
