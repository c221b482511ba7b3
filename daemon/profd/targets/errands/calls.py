"""The system calls of a process of errands: files, its conversation, memory. Every other call ends in ENOSYS.

A process for names of sockets also makes, binds and probes datagram sockets.
"""

from __future__ import annotations

import os
from typing import Final

from profd.kernel import bpf

# name, number on x86_64, number on aarch64 (-1: there is none); aarch64's never ran.
_TABLE: Final = """
sendto 44 206  recvfrom 45 207  recvmsg 47 212  openat 257 56  openat2 437 437  close 3 57
newfstatat 262 79  fstat 5 80  fallocate 285 47
stat 4 -1  lstat 6 -1  statx 332 291  read 0 63  pread64 17 67  pwrite64 18 68  write 1 64  lseek 8 62
copy_file_range 326 285  ftruncate 77 46  fstatfs 138 44  statfs 137 43  fgetxattr 193 10  getxattr 191 8
rename 82 -1  renameat 264 38  renameat2 316 276  unlink 87 -1  unlinkat 263 35  open 2 -1
readlink 89 -1  readlinkat 267 78  getdents64 217 61
mmap 9 222  munmap 11 215  mremap 25 216  brk 12 214  madvise 28 233  mprotect 10 226  futex 202 98
rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139  restart_syscall 219 128
exit 60 93  exit_group 231 94  getpid 39 172  getppid 110 173  gettid 186 178  getuid 102 174  geteuid 107 175
getgid 104 176  getegid 108 177  clock_gettime 228 113  getrandom 318 278  uname 63 160
"""
_NAMING: Final = """
bind 49 200  connect 42 203  getsockname 51 204  getsockopt 55 209  chmod 90 -1  fchmodat 268 53  fchmod 91 52
"""
_SOCKET: Final = {"x86_64": 41, "aarch64": 198}
_AF_UNIX, _SOCK_DGRAM, _SOCK_KIND = 1, 2, 0xF
_IOCTL: Final = {"x86_64": 16, "aarch64": 29}
_FICLONE: Final = 0x40049409
_COLUMNS: Final = {"x86_64": 1, "aarch64": 2}


def program(*, naming: bool = False) -> bytes:
    """The filter for this machine as classic BPF; nothing where its calls are not known."""
    machine = os.uname().machine
    column = _COLUMNS.get(machine)
    if column is None:
        return b""
    words = (_TABLE + _NAMING if naming else _TABLE).split()
    numbers = [int(words[at + column]) for at in range(0, len(words), 3)]
    cloning = bpf.rule(_IOCTL[machine], (bpf.ALLOW, bpf.Test(1, (_FICLONE,))))
    datagrams = (bpf.ALLOW, bpf.Test(0, (_AF_UNIX,)), bpf.Test(1, (_SOCK_DGRAM,), mask=_SOCK_KIND))
    rules = [cloning, bpf.rule(_SOCKET[machine], datagrams)] if naming else [cloning]
    return bpf.program(machine, [number for number in numbers if number >= 0], rules, unknown=bpf.ENOSYS)
