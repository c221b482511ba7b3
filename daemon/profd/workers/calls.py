"""The system calls that a worker may make, and the seccomp filter of this list.

A call that a new kernel or a new libc brings is not on the list and ends in ENOSYS: its caller does without, or the job
fails. The daemon learns of the call (`unknown_calls.py`) and logs it once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from profd.kernel import bpf

# name, number on x86_64, number on aarch64 (-1: there is none). The most frequent first: kernels before 5.11
# walk the filter at every call. No rename: one between two directories can wait beyond SIGKILL (`disk.files.rename`).
_TABLE: Final = """
read 0 63  write 1 64  futex 202 98  mmap 9 222  munmap 11 215  madvise 28 233  pread64 17 67  lseek 8 62
mprotect 10 226  brk 12 214  mremap 25 216  rt_sigprocmask 14 135  sched_yield 24 124  clock_nanosleep 230 115
pwrite64 18 68  readv 19 65  writev 20 66  preadv 295 69  preadv2 327 286  pwritev 296 70  sendfile 40 71
copy_file_range 326 285
open 2 -1  openat 257 56  close 3 57  dup 32 23  stat 4 -1  fstat 5 80  lstat 6 -1  newfstatat 262 79
statx 332 291  statfs 137 43  fstatfs 138 44  access 21 -1  faccessat 269 48  faccessat2 439 439
readlink 89 -1  readlinkat 267 78  getdents64 217 61  getcwd 79 17  mkdir 83 -1  mkdirat 258 34  rmdir 84 -1
unlink 87 -1  unlinkat 263 35  ftruncate 77 46  fallocate 285 47  fsync 74 82  fdatasync 75 83  fadvise64 221 223
poll 7 -1  ppoll 271 73  select 23 -1  pselect6 270 72
recvfrom 45 207  recvmsg 47 212  sendmsg 46 211
exit 60 93  exit_group 231 94  set_robust_list 273 99  set_tid_address 218 96  rseq 334 293
rt_sigaction 13 134  rt_sigreturn 15 139  sigaltstack 131 132  restart_syscall 219 128
getpid 39 172  getppid 110 173  gettid 186 178  getuid 102 174  geteuid 107 175  getgid 104 176  getegid 108 177
uname 63 160  sysinfo 99 179  getrusage 98 165  times 100 153  getcpu 309 168  getrandom 318 278
sched_getaffinity 204 123  clock_gettime 228 113  clock_getres 229 114  nanosleep 35 101
gettimeofday 96 169  time 201 -1
"""

# Calls whose arguments are looked at.
_CHECKED: Final = """
tgkill 234 131  prlimit64 302 261  getpriority 140 141  setpriority 141 140  fcntl 72 25  ioctl 16 29  prctl 157 167
clone 56 220  sendto 44 206
"""

# What libraries ask for and do without: nobody is told. clone3's flags lie in memory, which no filter reads; libc
# goes back to clone. OpenBLAS asks for mbind.
_WITHOUT: Final = """
clone3 435 435  mbind 237 235
"""

# Not F_SETOWN, F_SETSIG, F_NOTIFY: they send signals. Not F_SETLEASE.
# DUPFD GETFD SETFD GETFL SETFL GETLK SETLK SETLKW, of open file descriptions, DUPFD_CLOEXEC
_FCNTL: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030)
# TCGETS (isatty) FIONREAD FIONBIO FIONCLEX FIOCLEX. Not what seccomp's own descriptors answer to: who holds the
# descriptor of `listener()` can let the calls of this process through.
_IOCTL: Final = (0x5401, 0x541B, 0x5421, 0x5450, 0x5451)
_PRCTL: Final = (15, 16, 0x53564D41)  # SET_NAME, GET_NAME, SET_VMA: names of threads and of memory
# What pthread_create asks for: VM FS FILES SIGHAND THREAD SYSVSEM SETTLS PARENT_SETTID CHILD_CLEARTID
_THREAD: Final = 0x003D0F00
_DETACHED: Final = 0x00400000  # musl adds it; it means nothing
_OF_THIS_THREAD: Final = (bpf.Test(0, (os.PRIO_PROCESS,)), bpf.Test(1, (0,)))

_MACHINES: Final = {"x86_64": 1, "aarch64": 2}  # their columns of the tables


@dataclass(frozen=True, slots=True)
class Other:
    """The difference between the list of another process and a worker's. Tables as above."""

    more: str = ""
    less: frozenset[str] = frozenset()
    checked: str = ""
    tests: Mapping[str, tuple[bpf.Test, ...]] = field(default_factory=dict)  # of what is checked; all hold


SAME: Final = Other()


def known(machine: str = "") -> bool:
    """There are tables for this machine."""
    return (machine or os.uname().machine) in _MACHINES


def allowed(machine: str = "") -> dict[str, int]:
    """The calls that may pass, by name; some of them not with every argument."""
    column = _MACHINES[machine or os.uname().machine]
    return {**_column(_TABLE, column), **_column(_CHECKED, column)}


def program(pid: int, *, ask: bool, machine: str = "", other: Other = SAME) -> bytes:
    """The filter for process `pid`, which may send signals to itself alone, as classic BPF.

    `ask`: the kernel asks a listener about calls on no list; otherwise these end in ENOSYS at once.
    """
    machine = machine or os.uname().machine
    column = _MACHINES[machine]
    plain = {**_column(_TABLE, column), **_column(other.more, column)}
    checked = {**_column(_CHECKED, column), **_column(other.checked, column)}
    return bpf.program(
        machine,
        [number for name, number in plain.items() if name not in other.less],
        [bpf.rule(checked[name], (bpf.ALLOW, *tests)) for name, tests in {**_tests(pid), **other.tests}.items()],
        quiet=_column(_WITHOUT, column).values(),
        unknown=bpf.ASK if ask else bpf.ENOSYS,
    )


def _tests(pid: int) -> dict[str, tuple[bpf.Test, ...]]:
    """Tests of a call's arguments; a call that fails one ends in EPERM."""
    return {
        "tgkill": (bpf.Test(0, (pid,)),),
        "prlimit64": (bpf.Test(0, (0, pid)),),
        "getpriority": _OF_THIS_THREAD,
        "setpriority": _OF_THIS_THREAD,
        "fcntl": (bpf.Test(1, _FCNTL),),
        "ioctl": (bpf.Test(1, _IOCTL),),
        "prctl": (bpf.Test(0, _PRCTL),),
        "clone": (bpf.Test(0, (_THREAD,), ~_DETACHED & 0xFFFFFFFF),),
        "sendto": (bpf.Test(4, whole=0),),  # to the other end of the socket, not to an address
    }


def _column(table: str, column: int) -> dict[str, int]:
    words = table.split()
    numbers = zip(words[::3], map(int, words[column::3]), strict=True)
    return {name: number for name, number in numbers if number >= 0}
