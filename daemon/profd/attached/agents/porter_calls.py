"""The system calls that are left to a porter, as a seccomp filter. All others do not exist for it (ENOSYS)."""

from __future__ import annotations

import os
from typing import Final

from profd.kernel import bpf

# (x86_64, aarch64); None: there is no such call.
_PLAIN: Final[dict[str, tuple[int | None, int | None]]] = {
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "poll": (7, None),
    "ppoll": (271, 73),
    "recvmsg": (47, 212),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "epoll_ctl": (233, 21),
    "close": (3, 57),
    "shutdown": (48, 210),
    "setitimer": (38, 103),
    "rt_sigreturn": (15, 139),
    "restart_syscall": (219, 128),
    "exit_group": (231, 94),
}
_FCNTL: Final = (72, 25)
_SENDTO: Final = (44, 206)
_F_GET_SEALS: Final = 1034
_COLUMNS: Final = {"x86_64": 0, "aarch64": 1}
_NONE: Final = b"\0"  # no whole instruction: without a filter


def program(machine: str = "") -> bytes:
    """The filter as classic BPF; less than one instruction for a machine whose numbers are not known here."""
    machine = machine or os.uname().machine
    column = _COLUMNS.get(machine)
    if column is None:
        return _NONE
    plain = [number for numbers in _PLAIN.values() if (number := numbers[column]) is not None]
    rules = [
        bpf.rule(_FCNTL[column], (bpf.ALLOW, bpf.Test(1, (_F_GET_SEALS,)))),
        bpf.rule(_SENDTO[column], (bpf.ALLOW, bpf.Test(4, whole=0))),  # to the other end, not to an address
    ]
    return bpf.program(machine, plain, rules, unknown=bpf.ENOSYS)
