"""Whether a process is still what it was when somebody was allowed to look into it.

A pid with its start time names one process for ever, and says nothing of the program in it: both outlive execve(2), of
a setuid program, too. So who reads a process by privilege accepts it first, reads, and asks again before anything that
was read goes anywhere. Why this is a proof, and of what: docs/decisions/0008-identity-across-exec.md.
"""

from __future__ import annotations

import errno
import os
import select
import threading
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from profd.errors import Exhausted
from profd.kernel.pidfd import dumpable
from profd.targets import procfs, user_namespaces
from profd.targets.process import ProcessId
from profd.targets.user_namespaces import Asker, UserNamespace


class Standing(Enum):
    """The fate of a process since it was accepted."""

    SAME = auto()
    CHANGED = auto()  # it runs another program, or with other rights
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class _Look:
    """The facts that the kernel tells of a process without waiting for it."""

    start_ticks: int
    layout: tuple[int, ...]  # of its memory, which exec draws anew
    uids: tuple[int, ...]  # real, effective, saved
    gids: tuple[int, ...]
    owner: int  # whose it is to us
    files_of: int  # who has its files in /proc: root, where it is not dumpable; its namespace's in one that is not ours
    dumpable: bool | None  # None: the kernel does not say
    over: bool
    surpassing: bool = field(compare=False)  # as Process.private: it may give its capabilities up
    user_namespace: UserNamespace | None = field(compare=False)


class Accepted:
    """A process as it is now, to be compared with what it is later. Close it: it holds two descriptors at most.

    A process that has once changed or ended stays so. One that does not answer counts as changed, is `silent`, and may
    be asked again: what makes it the SAME is compared anew each time. Every method but `hold` returns at once, or after
    a moment that has a limit (targets/guarded.py) where the process does not answer, and may be called from any thread.
    """

    def __init__(self, process: ProcessId, uid: int) -> None:
        """`uid`: whose it is by the process table, which was allowed to have it. Raises Exhausted."""
        self.process = process
        self.uid = uid
        self._lock = threading.Lock()
        self._map = -1  # of its memory
        self.silent = False  # the last look had no answer in time
        self._pidfd = _pidfd(process.pid)
        self._end = select.poll()
        self._first = _look(process.pid, self._pidfd)
        if self._pidfd >= 0:
            self._end.register(self._pidfd, select.POLLIN)
        if self._first is None and self._pidfd >= 0 and not self._end.poll(0):  # whatever became of the look
            self.silent = True
            self._standing = Standing.CHANGED  # within exec: whatever was allowed to be looked at is not there any more
        elif self._first is None or self._first.start_ticks != process.start_ticks or self._pidfd < 0:
            self._standing = Standing.ENDED
        else:
            self._standing = Standing.SAME if self._first.owner == uid else Standing.CHANGED

    def hold(self) -> str:
        """Keep hold of its memory map, without which nothing may be read by privilege; a sentence if that fails.

        May wait a moment for the process, which can be in the middle of an exec: for a thread.
        """
        pid = self.process.pid
        if self._map >= 0:
            return ""
        try:
            opened = procfs.opened(f"/proc/{pid}/pagemap", os.O_RDONLY)
        except OSError as error:
            if self.standing() is not Standing.SAME:
                return ""  # that says more
            if isinstance(error, TimeoutError):
                return procfs.silence(pid)
            return (
                f"process {pid} may not be read: whether it stays the same program cannot be proved "
                f"(/proc/{pid}/pagemap: {error.strerror}). Run profd as root, or give it CAP_SYS_PTRACE."
            )
        with self._lock:
            if self._pidfd < 0 or self._map >= 0:
                os.close(opened)
            else:
                self._map = opened  # of another program, if it was exec'd before this: `standing` sees that
        return ""

    def standing(self) -> Standing:
        """Its standing now. SAME: all that has been read of it until this call was that program's."""
        with self._lock:
            if self._standing is Standing.SAME:
                self.silent = False
                standing = self._now()
                if self.silent:
                    return standing
                self._standing = standing
            return self._standing

    @property
    def same(self) -> bool:
        """It is."""
        return self.standing() is Standing.SAME

    def private(self, asker: Asker | None = None) -> bool:
        """As Process.private when it was accepted, which may be later than the process table saw it.

        `asker`: as Process.asker.
        """
        first = self._first
        if first is None or first.owner != self.uid:
            return False
        shut = first.user_namespace is not None and not first.user_namespace.opens_to(self.uid, asker)
        return shut or first.files_of != self.uid or first.surpassing

    def moved_on(self) -> str:
        """A sentence for who is refused a process that is no longer the same."""
        pid = self.process.pid
        if self.silent:
            return procfs.silence(pid).removesuffix(".")
        if self.standing() is Standing.ENDED:
            return f"process {pid} has ended"
        return (
            f"process {pid} runs another program by now (exec), or with other rights, than when it was accepted; "
            "ask again to profile what it runs now"
        )

    def close(self) -> None:
        """Let go of it; a second call does nothing."""
        with self._lock:
            self._standing = Standing.ENDED
            for fd in (self._map, self._pidfd):
                if fd >= 0:
                    os.close(fd)
            self._map = self._pidfd = -1

    def _now(self) -> Standing:
        now = _look(self.process.pid, self._pidfd, self._map)
        in_use = now is not _NOBODYS
        if now is _NOBODYS:
            if not self._end.poll(0) and procfs.has_memory(self.process.pid):
                return Standing.CHANGED  # before anything is asked that waits for the exec that has brought it
            now = _look(self.process.pid, self._pidfd)
        if now is None and not self._end.poll(0):  # whatever became of the look: a busy host has no core for some
            self.silent = True
            return Standing.CHANGED
        # Its memory goes before its pidfd tells: `over` is true by then.
        if now is None or now.over or now.start_ticks != self.process.start_ticks or self._end.poll(0):
            return Standing.ENDED
        return Standing.SAME if in_use and now == self._first else Standing.CHANGED


_NOBODYS: Final = _Look(0, (), (), (), -1, -1, None, over=False, surpassing=False, user_namespace=None)
"""Nobody has the memory any more of which a map is held; nothing else was asked."""


def _look(pid: int, pidfd: int, pagemap: int = -1) -> _Look | None:
    """None: there is no such process, or it does not answer. `pagemap`: of the memory that it has to have."""
    link = ""
    # Before the rest: of one whose memory is gone `over` is true by then.
    may_be_dumped = dumpable(pidfd) if pidfd >= 0 else None
    if pagemap < 0:
        stat, status, link = procfs.look_at(pid)
    else:
        in_use, stat, status = procfs.look_behind(pagemap, pid)
        if not in_use:
            return _NOBODYS
    try:
        files_of = procfs.files_of(pid)
    except OSError:
        return None
    if stat is None or status is None:
        return None
    over = stat.exiting or stat.state in "ZXx"
    surpassing, namespace = False, None
    if pagemap < 0:  # when it is accepted
        surpassing = procfs.surpasses_its_user(pid, status, namespace=link)
        namespace = user_namespaces.of(pid, status.capabilities, link, may_be_dumped)
    return _Look(
        stat.start_ticks,
        stat.layout,
        status.uids[:3],
        status.gids[:3],
        status.uid,
        files_of,
        may_be_dumped,
        over,
        surpassing,
        namespace,
    )


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):
            return -1
        raise Exhausted(
            f"process {pid} cannot be watched ({error.strerror}). Raise profd's limit of open files."
        ) from error
