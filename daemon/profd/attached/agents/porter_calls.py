"""The system calls that are left to porters and droppers, as seccomp filters. Others do not exist for them (ENOSYS)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from profd.kernel import bpf

_Numbers = tuple[int | None, int | None]
"""Of x86_64 and aarch64; None: there is no such call."""

_BOTH: Final[dict[str, _Numbers]] = {
    "poll": (7, None),
    "ppoll": (271, 73),
    "recvmsg": (47, 212),
    "recvfrom": (45, 207),
    "close": (3, 57),
    "shutdown": (48, 210),
    "setitimer": (38, 103),
    "rt_sigreturn": (15, 139),
    "restart_syscall": (219, 128),
    "exit_group": (231, 94),
}
_OF_PORTERS: Final[dict[str, _Numbers]] = {
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "epoll_ctl": (233, 21),
    "sendmsg": (46, 211),
}
_OF_DROPPERS: Final[dict[str, _Numbers]] = {"futex": (202, 98)}
_FCNTL: Final = (72, 25)
_SENDTO: Final = (44, 206)
_GETSOCKOPT: Final = (55, 209)
_SETSOCKOPT: Final = (54, 208)
_IOCTL: Final = (16, 29)
_F_GET_SEALS: Final = 1034
_SIOCOUTQ: Final = 0x5411
_COLUMNS: Final = {"x86_64": 0, "aarch64": 1}
_NONE: Final = b"\0"  # no whole instruction: without a filter


def of_porters(machine: str = "") -> bytes:
    """The filter as classic BPF; less than one instruction for a machine whose numbers are not known here."""
    return _program(
        machine, _OF_PORTERS, {_FCNTL: (bpf.Test(1, (_F_GET_SEALS,)),), _IOCTL: (bpf.Test(1, (_SIOCOUTQ,)),)}
    )


def of_droppers(machine: str = "") -> bytes:
    """As of_porters."""
    level = bpf.Test(1, (socket.SOL_SOCKET,))
    asked = {
        _GETSOCKOPT: (level, bpf.Test(2, (socket.SO_TYPE,))),
        _SETSOCKOPT: (level, bpf.Test(2, (socket.SO_PASSCRED,))),
    }
    return _program(machine, _OF_DROPPERS, asked)


def _program(machine: str, own: dict[str, _Numbers], asked: Mapping[tuple[int, int], tuple[bpf.Test, ...]]) -> bytes:
    """`asked`: calls that pass where all of these hold."""
    machine = machine or os.uname().machine
    column = _COLUMNS.get(machine)
    if column is None:
        return _NONE
    plain = [number for numbers in (own | _BOTH).values() if (number := numbers[column]) is not None]
    rules = [bpf.rule(numbers[column], (bpf.ALLOW, *tests)) for numbers, tests in asked.items()]
    # To the other end, not to an address.
    rules.append(bpf.rule(_SENDTO[column], (bpf.ALLOW, bpf.Test(4, whole=0))))
    return bpf.program(machine, plain, rules, unknown=bpf.ENOSYS)
