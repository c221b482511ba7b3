"""The system calls that are left to a sampler, as a seccomp filter.

What is not named does not exist for it (ENOSYS): no sockets, no signals, no processes, no namespaces, no mounts, no
change of identity or of files. What it is to a certain end only is looked at (EPERM): the memory of its target and of
nobody else, threads and no processes, and one exec: the one that names a secret which is gone with the memory of who
knew it. A filter sees all six arguments of a call, also those that the call does not have.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Final

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

_MACHINES: Final = {
    "x86_64": (0, 0xC000003E, 0x8000),
    "aarch64": (1, 0xC00000B7, 0x20000),
}  # column, audit, O_LARGEFILE
_X32_BIT: Final = 0x40000000  # the x32 numbers of x86_64 would walk round the list

_ALLOW: Final = 0x7FFF0000
_ASK: Final = 0x7FC00000  # SECCOMP_RET_USER_NOTIF: the warden answers
_EPERM: Final = 0x00050001
_ENOSYS: Final = 0x00050026

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


@dataclass(frozen=True, slots=True)
class _Test:
    """One argument: its low half, masked, is one of some values; or the whole of it is `whole`."""

    argument: int
    values: tuple[int, ...] = ()
    mask: int = 0xFFFFFFFF
    whole: int | None = None


def build(machine: str, target: int, secret: bytes, *, native: bool, warden: bool) -> bytes | None:
    """The program; None for a machine whose numbers are not known.

    `native`: the target may be traced. `warden`: somebody listens, who is asked before a file is opened or looked at or
    a thread seized.
    """
    if machine not in _MACHINES:
        return None
    column, audit, large = _MACHINES[machine]
    ask = _ASK if warden else _ALLOW
    word = int.from_bytes(secret, "little")
    blocks = [
        _rule(_READV[column], (_ALLOW, _Test(0, (target,)))),
        *(_opens(number[column], at, large, ask) for number, at in ((_OPEN, 1), (_OPENAT, 2))),
        *(_rule(numbers[column], (ask,)) for numbers in _STATS),
        _rule(_FCNTL[column], (_ALLOW, _Test(1, _FCNTLS))),
        _rule(_IOCTL[column], (_ALLOW, _Test(1, _IOCTLS))),
        _rule(_PRCTL[column], (_ALLOW, _Test(0, _PRCTLS))),
        _rule(_PRLIMIT[column], (_ALLOW, _Test(0, (0,)), _Test(2, whole=0))),
        _rule(_CLONE[column], (_ALLOW, _Test(0, (_THREAD,), _THREAD | _NAMESPACES))),
        _rule(_EXECVEAT[column], (_ALLOW, _Test(4, (_AT_EMPTY_PATH,)), _Test(5, whole=word))),
    ]
    if native:
        blocks.append(_rule(_PTRACE[column], (_ALLOW, _Test(0, _PTRACES)), (ask, _Test(0, _SEIZES))))
    plain = [numbers[column] for numbers in _PLAIN.values()]
    return _program(audit, blocks, [number for number in plain if number is not None])


def _opens(number: int | None, at: int, large: int, ask: int) -> list[bytes]:
    """For reading; and for writing as what py-spy writes is (RLIMIT_FSIZE leaves it pipes)."""
    written = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return _rule(
        number,
        (ask, _Test(at, (0,), os.O_ACCMODE | os.O_CREAT | os.O_TRUNC)),
        (_ALLOW, _Test(at, (written,), 0xFFFFFFFF & ~large)),
    )


_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06


def _step(code: int, true: int, false: int, k: int) -> bytes:
    return struct.pack("=HBBI", code, true, false, k)


def _rule(number: int | None, *ways: tuple[int, *tuple[_Test, ...]]) -> list[bytes]:
    """For one call: the answer of the first way whose tests all hold, else EPERM. Leaves the number loaded."""
    if number is None:
        return []
    steps: list[bytes] = []
    for answer, *tests in ways:
        way = [_step(_RETURN, 0, 0, answer)]
        for test in reversed(tests):
            way = [*_tested(test, len(way)), *way]
        steps += way
    steps.append(_step(_RETURN, 0, 0, _EPERM))
    return [_step(_EQUAL, 0, len(steps), number), *steps]


def _tested(test: _Test, rest: int) -> list[bytes]:
    """On to the next step if it holds, past `rest` steps if not."""
    low = 16 + 8 * test.argument  # of struct seccomp_data, little endian
    if test.whole is not None:
        return [
            _step(_LOAD, 0, 0, low),
            _step(_EQUAL, 0, rest + 2, test.whole & 0xFFFFFFFF),
            _step(_LOAD, 0, 0, low + 4),
            _step(_EQUAL, 0, rest, test.whole >> 32),
        ]
    count = len(test.values)
    compared = [
        _step(_EQUAL, count - 1 - place, rest if place == count - 1 else 0, value)
        for place, value in enumerate(test.values)
    ]
    return [_step(_LOAD, 0, 0, low), _step(_AND, 0, 0, test.mask), *compared]


def _program(audit: int, blocks: list[list[bytes]], plain: list[int]) -> bytes:
    steps = [
        _step(_LOAD, 0, 0, 4),  # the architecture
        _step(_EQUAL, 1, 0, audit),
        _step(_RETURN, 0, 0, _ENOSYS),
        _step(_LOAD, 0, 0, 0),  # the number
        _step(_AT_LEAST, 0, 1, _X32_BIT),
        _step(_RETURN, 0, 0, _ENOSYS),
        *(step for block in blocks for step in block),
        *(_step(_EQUAL, len(plain) - place, 0, number) for place, number in enumerate(plain)),
        _step(_RETURN, 0, 0, _ENOSYS),
        _step(_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(steps)
