"""What a worker gives up before it touches anything hostile.

Every step says whether it worked; the daemon logs the answer once, and
`docs/security.md` names what each is for. Calls go through libc by ctypes:
the standard library has no prctl.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAPABILITIES: Final = 64

# pidfd_send_signal pidfd_open pidfd_getfd: the same numbers everywhere
_PIDFD: Final = (424, 434, 438)

# (audit architecture, system calls that end in EPERM). Sockets, io_uring (it
# can open sockets by itself), new programs, other processes, namespaces.
_FORBIDDEN: Final[dict[str, tuple[int, tuple[int, ...]]]] = {
    # socket connect accept accept4 bind listen socketpair | execve execveat | ptrace process_vm_*
    # | mount unshare setns | io_uring_setup bpf perf_event_open | kill tkill pidfd_*
    "x86_64": (
        0xC000003E,
        (41, 42, 43, 288, 49, 50, 53, 59, 322, 101, 310, 311, 165, 272, 308, 425, 321, 298, 62, 200),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 203, 202, 242, 200, 201, 199, 221, 281, 117, 270, 271, 40, 97, 268, 425, 280, 241, 129, 130),
    ),
}
_X32_BIT: Final = 0x40000000  # the x32 numbers of x86_64 would walk round the list

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL when the daemon dies; exit now if it already has."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the daemon that started this worker is gone")


def lower(memory_bytes: int, nice: int = 5) -> None:
    """Own session (the terminal's Ctrl-C is the daemon's), lower weight, bounded memory, no core files."""
    with contextlib.suppress(OSError):
        os.setsid()
    with contextlib.suppress(OSError):
        os.nice(nice)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, memory_bytes)
    # Under pressure the kernel is to take a worker, never the daemon or the job.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def become(uid: int, gid: int) -> None:
    """Take another identity for good. Raises OSError without the right to."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def drop_privileges() -> list[str]:
    """No capabilities, none to be had by exec; returns what holds now."""
    held = []
    for capability in range(_CAPABILITIES):
        _prctl(_PR_CAPBSET_DROP, capability)  # EPERM without CAP_SETPCAP: no_new_privs covers it
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1):
        held.append("no_new_privs")
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)) == 0:
        held.append("no capabilities")
    return held


def forbid_system_calls() -> list[str]:
    """No sockets, no new programs, no other processes; returns what holds now."""
    known = _FORBIDDEN.get(platform.machine())
    if known is None:
        return []
    architecture, numbers = known
    program = _filter(architecture, (*numbers, *_PIDFD))
    buffer = ctypes.create_string_buffer(program)
    argument = ctypes.create_string_buffer(
        struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer)), struct.calcsize("@HP")
    )
    if _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(argument)):
        return ["no sockets", "no exec"]
    return []


def _filter(architecture: int, forbidden: tuple[int, ...]) -> bytes:
    """A classic BPF program: other architecture or forbidden number -> EPERM, else allow."""

    def step(code: int, true: int, false: int, k: int) -> bytes:
        return struct.pack("=HBBI", code, true, false, k)

    load, equal, at_least, ret = 0x20, 0x15, 0x35, 0x06
    deny, allow = 0x00050000 | 1, 0x7FFF0000  # SECCOMP_RET_ERRNO|EPERM, SECCOMP_RET_ALLOW
    checks = len(forbidden)
    steps = [
        step(load, 0, 0, 4),  # seccomp_data.arch
        step(equal, 0, checks + 3, architecture),
        step(load, 0, 0, 0),  # seccomp_data.nr
        step(at_least, checks + 1, 0, _X32_BIT),
    ]
    steps += [step(equal, checks - index, 0, number) for index, number in enumerate(forbidden)]
    steps += [step(ret, 0, 0, allow), step(ret, 0, 0, deny)]
    return b"".join(steps)


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))


def _prctl(option: int, *arguments: int) -> bool:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return bool(_libc.prctl(option, *padded) == 0)
