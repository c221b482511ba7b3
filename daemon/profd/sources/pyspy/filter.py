"""The system calls that are left to a sampler, as a seccomp filter.

A call that is not named does not exist for it (ENOSYS): no sockets, no signals, no processes, no namespaces, no mounts,
no change of identity or of files. Arguments of calls that serve one end only are looked at (EPERM): the memory of its
target and of nobody else, threads and no processes, and one exec: the one that names a secret which is gone with the
memory of who knew it. A filter sees all six arguments of a call, also those that the call does not have.
"""

from __future__ import annotations

import os
from typing import Final

from profd.kernel import bpf

SECRET_BYTES: Final = 8

# (x86_64, aarch64); None: there is no such call.
_PLAIN: Final[dict[str, tuple[int | None, int | None]]] = {
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "lseek": (8, 62),
    "close": (3, 57),
    "fstat": (5, 80),
    "lstat": (6, None),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "madvise": (28, 233),
    "brk": (12, 214),
    "mincore": (27, 232),
    "msync": (26, 227),
    "futex": (202, 98),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pipe2": (293, 59),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getrusage": (98, 165),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "set_tid_address": (218, 96),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "arch_prctl": (158, None),
    "wait4": (61, 260),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
_READV: Final = (310, 270)
_OPEN: Final = (2, None)
_OPENAT: Final = (257, 56)
_STATS: Final = ((4, None), (262, 79))  # stat, newfstatat
_FCNTL: Final = (72, 25)
_IOCTL: Final = (16, 29)
_PRCTL: Final = (157, 167)
_PRLIMIT: Final = (302, 261)
_CLONE: Final = (56, 220)
_EXECVEAT: Final = (322, 281)
_PTRACE: Final = (101, 117)

_MACHINES: Final = {"x86_64": (0, 0x8000), "aarch64": (1, 0x20000)}  # column, O_LARGEFILE

_AT_EMPTY_PATH: Final = 0x1000
_FCNTLS: Final = (
    0,
    1,
    2,
    3,
    4,
    1030,
)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC; none that signals
_IOCTLS: Final = (0x5401, 0x5413, 0x5421, 0x5451)  # TCGETS, TIOCGWINSZ, FIONBIO, FIOCLEX
_PRCTLS: Final = (15, 16)  # PR_SET_NAME, PR_GET_NAME
_THREAD: Final = 0x00010000 | 0x00000100 | 0x00000800  # CLONE_THREAD, CLONE_VM, CLONE_SIGHAND
_NAMESPACES: Final = 0x7E020000  # CLONE_NEW*
_SEIZES: Final = (0x4206, 16)  # PTRACE_SEIZE, PTRACE_ATTACH
# INTERRUPT, DETACH, PEEKTEXT, PEEKDATA, PEEKUSER, GETREGS, GETFPREGS, GETREGSET: nothing that writes.
_PTRACES: Final = (0x4207, 17, 1, 2, 3, 12, 14, 0x4204)


def build(
    machine: str, target: int, secret: bytes, *, native: bool, warden: bool, counted: bool = True
) -> bytes | None:
    """The program; None for a machine whose numbers are not known.

    `native`: the target may be traced. `warden`: somebody listens, who is asked before a file is opened or looked at or
    a thread seized. `counted`: somebody is asked before a thread is started.
    """
    if machine not in _MACHINES:
        return None
    column, large = _MACHINES[machine]
    ask = bpf.ASK if warden else bpf.ALLOW
    word = int.from_bytes(secret, "little")
    blocks = [
        bpf.rule(_READV[column], (bpf.ALLOW, bpf.Test(0, (target,)))),
        *(_opens(number[column], at, large, ask) for number, at in ((_OPEN, 1), (_OPENAT, 2))),
        *(bpf.rule(numbers[column], (ask,)) for numbers in _STATS),
        bpf.rule(_FCNTL[column], (bpf.ALLOW, bpf.Test(1, _FCNTLS))),
        bpf.rule(_IOCTL[column], (bpf.ALLOW, bpf.Test(1, _IOCTLS))),
        bpf.rule(_PRCTL[column], (bpf.ALLOW, bpf.Test(0, _PRCTLS))),
        bpf.rule(_PRLIMIT[column], (bpf.ALLOW, bpf.Test(0, (0,)), bpf.Test(2, whole=0))),
        bpf.rule(
            _CLONE[column],
            (bpf.ASK if counted else bpf.ALLOW, bpf.Test(0, (_THREAD,), _THREAD | _NAMESPACES)),
        ),
        bpf.rule(_EXECVEAT[column], (bpf.ALLOW, bpf.Test(4, (_AT_EMPTY_PATH,)), bpf.Test(5, whole=word))),
    ]
    if native:
        blocks.append(bpf.rule(_PTRACE[column], (bpf.ALLOW, bpf.Test(0, _PTRACES)), (ask, bpf.Test(0, _SEIZES))))
    plain = [numbers[column] for numbers in _PLAIN.values()]
    return bpf.program(machine, [number for number in plain if number is not None], blocks, unknown=bpf.ENOSYS)


# What profd's own reader does: it reads its target, writes what it saw, waits, and gets memory.
_OF_READER: Final = (
    *("read", "write", "close", "mmap", "munmap", "mremap", "brk", "madvise"),
    *("ppoll", "clock_gettime", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "restart_syscall", "exit_group"),
)


def build_reader(machine: str, target: int) -> bytes | None:
    """The program for profd's own reader, which executes, opens and starts nothing; None as of `build`."""
    if machine not in _MACHINES:
        return None
    column = _MACHINES[machine][0]
    plain = [_PLAIN[name][column] for name in _OF_READER]
    reads = bpf.rule(_READV[column], (bpf.ALLOW, bpf.Test(0, (target,))))
    return bpf.program(machine, [number for number in plain if number is not None], [reads], unknown=bpf.ENOSYS)


def _opens(number: int | None, at: int, large: int, ask: int) -> list[bytes]:
    """For reading; and for writing as what py-spy writes is (RLIMIT_FSIZE leaves it pipes)."""
    written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return bpf.rule(
        number,
        (ask, bpf.Test(at, (0,), os.O_ACCMODE | os.O_CREAT | os.O_TRUNC)),
        (bpf.ALLOW, bpf.Test(at, (written,), 0xFFFFFFFF & ~large)),
    )
