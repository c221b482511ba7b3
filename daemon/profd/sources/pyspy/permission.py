"""May this daemon read the memory of a process? The kernel's rule, foretold.

py-spy reads with process_vm_readv(2), which asks for PTRACE_MODE_ATTACH
(ptrace(2), "Ptrace access mode checking"): CAP_SYS_PTRACE, or the same user and
a dumpable process; and what Yama adds (Documentation/admin-guide/LSM/Yama.rst).
A daemon in a container, or another security module, may still be refused;
py-spy's own words are explained then.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profd.kernel.capabilities import effective
from profd.model.capture import Reason
from profd.sources.base import Offer
from profd.targets import procfs
from profd.targets.identity import Accepted
from profd.targets.process import Process

_CAP_SYS_PTRACE: Final = 19
_CHANGING: Final = {
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
}  # what it takes to run and end another user's process
_YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
_AS_ROOT: Final = "Run profd as root, or give it CAP_SYS_PTRACE (deploy/systemd/profd.service does)."


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of the daemon: its user, CAP_SYS_PTRACE, and Yama's scope (0 where there is no Yama).

    `missing`: what a daemon that is root lacks to run a sampler that is not.
    """

    uid: int
    capable: bool
    scope: int
    missing: tuple[str, ...] = ()

    @classmethod
    def mine(cls) -> Rights:
        """The rights of this process now."""
        held = effective(Path("/proc/self/status").read_text("ascii", "replace")) or 0
        uid = os.geteuid()
        missing = tuple(name for name, number in _CHANGING.items() if uid == 0 and not held >> number & 1)
        return cls(uid, bool(held >> _CAP_SYS_PTRACE & 1), _scope(), missing)


def permission(process: Process, rights: Rights, dumpable: bool = True) -> Offer:
    """Can memory of the process be read? If not: why, and what would change it."""
    subject = f"process {process.id.pid}"
    if rights.scope >= 3:
        return _denied(
            f"{subject} cannot be sampled: kernel.yama.ptrace_scope is 3, which forbids it to everybody.",
            "Only a reboot with a lower kernel.yama.ptrace_scope changes that.",
        )
    if rights.missing:
        return _denied(
            f"{subject} cannot be sampled: profd is root without {', '.join(rights.missing)}, and its samplers "
            "run as another user, for they take the memory of others' processes apart.",
            f"Give it {'them' if len(rights.missing) > 1 else 'it'} (in a container: --cap-add).",
        )
    if rights.capable and process.private and not process.unrestricted:
        return _denied(
            f"{subject} is not dumpable (it has changed its identity, or asked for it), has capabilities, or is in a "
            "user namespace that its user has not made (a container of root's), so that its user may not look into it.",
            "Ask root or a member of profd's admin group, or have it attach: profclient.attach().",
        )
    if rights.capable:
        return Offer(True)
    if rights.uid == 0 == process.uid:
        return _denied(
            f"{subject} belongs to root, whose processes nobody else may read without CAP_SYS_PTRACE, which profd "
            "has not; and its samplers are not root.",
            _AS_ROOT,
        )
    if rights.uid != process.uid:
        return _denied(
            f"{subject} belongs to {process.user} and profd runs as uid {rights.uid} without CAP_SYS_PTRACE.",
            _AS_ROOT,
        )
    if rights.scope >= 1:
        return _denied(
            f"{subject} cannot be sampled: kernel.yama.ptrace_scope is {rights.scope} and profd has no CAP_SYS_PTRACE.",
            "sysctl kernel.yama.ptrace_scope=0"
            + (". " if rights.scope == 1 else " (and CAP_SYS_PTRACE until then). ")
            + _AS_ROOT,
        )
    if not dumpable:
        return _denied(
            f"{subject} is not dumpable (it changed its identity, or asked for it), "
            "so that only root may look into it.",
            _AS_ROOT,
        )
    return Offer(True)


def permission_now(process: Process, accepted: Accepted, rights: Rights) -> Offer:
    """The same of a process as it was accepted: it may have become private since it was asked for."""
    now = replace(process, private=accepted.private(process.asker))
    return permission(now, rights, dumpable(process))


def dumpable(process: Process) -> bool:
    """Is it? The kernel gives the files of a process that is not to root."""
    try:
        return procfs.files_of(process.id.pid) == process.uid
    except OSError:
        return True  # it ended; somebody else says so


def _denied(reason: str, fix: str) -> Offer:
    return Offer(False, reason, fix, Reason.NOT_PERMITTED)


def _scope() -> int:
    try:
        return int(_YAMA.read_text("ascii"))
    except (OSError, ValueError):
        return 0
