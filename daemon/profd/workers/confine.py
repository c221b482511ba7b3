"""The rights that a worker gives up before it touches anything hostile.

Every step says whether it worked. The daemon logs the answer once, and
`docs/security.md` has the reason of each step. Calls go through libc by ctypes:
the standard library has no prctl.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
from typing import Final

from profd.limits import WORKER_CPU_SECONDS, WORKER_FILE_BYTES_MAX
from profd.workers import calls, landlock

# Without these two nobody's bytes are read with uid 0.
SYSTEM_CALLS: Final = "system calls by allow-list"
FILES: Final = landlock.FILES

_PR_SET_PDEATHSIG: Final = 1
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
# seccomp(2), by machine: its number, an operation, a flag
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER: Final = 1
NEW_LISTENER: Final = 8
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAPABILITIES: Final = 64

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the daemon dies; exit now if it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the daemon that started this worker is gone")


def lower(memory_bytes: int, nice: int = 5) -> None:
    """Own session (the terminal's Ctrl-C is the daemon's), lower weight, bounded memory, files and CPU, no cores."""
    from profclient.priority import give_way  # not above: observers.launch finds profd alone

    with contextlib.suppress(OSError):
        os.setsid()
    give_way(nice)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, memory_bytes)
    _limit(resource.RLIMIT_FSIZE, WORKER_FILE_BYTES_MAX)
    _limit(resource.RLIMIT_CPU, WORKER_CPU_SECONDS)
    # Under pressure the kernel is to take a worker, never the daemon or the job.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def become(uid: int, gid: int) -> None:
    """Take another identity for good. Raises OSError without the right to."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def drop_privileges() -> list[str]:
    """Drop all capabilities, and those that exec would bring. Returns what holds now."""
    held = []
    for capability in range(_CAPABILITIES):
        _prctl(_PR_CAPBSET_DROP, capability)  # EPERM without CAP_SETPCAP: no_new_privs covers it
    if no_new_privileges():
        held.append("no_new_privs")
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)) == 0:
        held.append("no capabilities")
    return held


def no_new_privileges() -> bool:
    """Set no_new_privs: exec brings no privileges. A filter of system calls needs it."""
    return _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def allow_system_calls() -> tuple[list[str], int | None]:
    """Leave this thread, and all it starts, the calls of `calls.py`. Returns what holds now, and the listener.

    The kernel asks the listener, which must go to the daemon, about every other call. A kernel before 5.0, or one that
    has another listener, gives None: other calls then end in ENOSYS, and the daemon does not learn of them.
    """
    if not calls.known():
        return [], None
    listener = install(calls.program(os.getpid(), ask=True), NEW_LISTENER)
    if listener >= 0:
        return [SYSTEM_CALLS], listener
    if install(calls.program(os.getpid(), ask=False), 0) == 0:
        return [SYSTEM_CALLS, "unknown calls are not logged"], None
    return [], None


def install(program: bytes, flags: int) -> int:
    """Install this filter. Returns 0, or the listener of NEW_LISTENER; a negative number where the kernel refused."""
    buffer = ctypes.create_string_buffer(program)
    argument = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    words = [ctypes.c_long(word) for word in (_SECCOMP[os.uname().machine], _SET_MODE_FILTER, flags)]
    return int(_libc.syscall(*words, ctypes.create_string_buffer(argument, len(argument))))


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def _prctl(option: int, *arguments: int) -> bool:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return bool(_libc.prctl(option, *padded) == 0)
