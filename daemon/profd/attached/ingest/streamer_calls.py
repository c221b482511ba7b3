"""The system calls that are left to a streamer: a worker's, but for those that change files, and what gRPC takes.

Everything else does not exist for it: no processes, no exec, no tracing, no signals to others; sockets are Unix ones.
"""

from __future__ import annotations

import socket
from typing import Final

from profd.kernel import bpf
from profd.workers.calls import Other

# name, number on x86_64, number on aarch64 (-1: there is none), as in workers/calls.py
_MORE: Final = """
epoll_wait 232 -1  epoll_pwait 281 22  epoll_pwait2 441 441  epoll_ctl 233 21  epoll_create1 291 20
eventfd2 290 19  pipe2 293 59  connect 42 203  shutdown 48 210
getsockopt 55 209  setsockopt 54 208  getsockname 51 204  getpeername 52 205
membarrier 324 283  sched_getparam 143 121  sched_getscheduler 145 120
"""
_LESS: Final = """
pwrite64 pwritev sendfile copy_file_range mkdir mkdirat rmdir unlink unlinkat fsync fdatasync fadvise64
"""
_CHECKED: Final = """
socket 41 198  socketpair 53 199
"""
# As for workers, and F_GET_SEALS
_FCNTL: Final = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1034)

CALLS: Final = Other(
    more=_MORE,
    less=frozenset(_LESS.split()),
    checked=_CHECKED,
    tests={
        "socket": (bpf.Test(0, (int(socket.AF_UNIX),)),),
        "socketpair": (bpf.Test(0, (int(socket.AF_UNIX),)),),
        "fcntl": (bpf.Test(1, _FCNTL),),
    },
)
