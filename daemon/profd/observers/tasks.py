"""How many processes and threads a build may start, whatever becomes of its compilers: all of them are asked for.

They have the identity of whose build it is, and count as the daemon's own (`TasksMax`). A filter of
calls stays with them whatever they become, and cannot count; so it asks (seccomp_unotify(2)), and the daemon counts:
over all of the build's time, not at once.

The list is one of what is forbidden, since compilers are of many makes, and all else that they could be made to do
their user may do anyway, without the daemon. It has what makes tasks without asking, and what leaves the process
group by which a build is ended.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from profd.kernel import bpf
from profd.limits import OBSERVER_TASKS_MAX
from profd.workers.listener import HeldCall, WorkerListener

# name: x86_64, aarch64; None: there is no such call
_ASKED: Final[dict[str, tuple[int | None, int | None]]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE: Final = (56, 220)
_NAMESPACES: Final = 0x7E020000  # CLONE_NEW*
_PARENT: Final = 0x8000  # CLONE_PARENT: a child of the daemon, which reaps none that it has not started
# The group stays one; nothing that a namespace would bring.
_REFUSED: Final = {"setsid": (112, 157), "setpgid": (109, 154), "unshare": (272, 97), "setns": (308, 268)}
# The capability that keeps its user from tracing it (`kernel.capabilities`) is worth nothing without these.
_UNOWNED: Final = {"chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54)}
# clone3 has its flags in memory, and libc does without. io_uring has threads of its own. seccomp needs no second one.
_WITHOUT: Final = (435, 425, 426, 427)
_MACHINES: Final = {"x86_64": 0, "aarch64": 1}
_X32: Final = 0x40000000  # the same calls once more


def program(machine: str = "") -> bytes | None:
    """The filter; None for a machine whose numbers are not known."""
    machine = machine or os.uname().machine
    column = _MACHINES.get(machine)
    if column is None:
        return None
    asked = [numbers[column] for numbers in _ASKED.values()]
    refused = [numbers[column] for numbers in (*_REFUSED.values(), *_UNOWNED.values())]
    rules = [bpf.rule(number, (bpf.ASK,)) for number in asked]
    rules.append(bpf.rule(_CLONE[column], (bpf.ASK, bpf.Test(0, (0,), _NAMESPACES | _PARENT))))
    rules += [bpf.rule(number) for number in refused]
    again = [number | _X32 for number in (*asked, *refused, _CLONE[column], *_WITHOUT) if number is not None]
    return bpf.program(machine, [], rules, quiet=(*_WITHOUT, *again), unknown=bpf.ALLOW)


class Tasks:
    """The count of one build, on the event loop, until `close()`."""

    def __init__(self, listener: int, too_many: Callable[[], object], most: int = OBSERVER_TASKS_MAX) -> None:
        """Takes the descriptor over. `too_many` is called once."""
        self.started = 0
        self._most = most
        self._too_many = too_many
        self._listener = WorkerListener(listener, self._answer)

    @property
    def used_up(self) -> bool:
        """More were asked for than a build takes."""
        return self.started > self._most

    def close(self) -> None:
        """None is started any more. Safe to repeat."""
        self._listener.close()

    def _answer(self, _question: HeldCall) -> int:
        self.started += 1
        if not self.used_up:
            return 0
        self.close()  # who goes on asking asks the kernel, not us
        self._too_many()
        return errno.EAGAIN
