"""Answers what a sampler's filter does not decide. Run by `tool.spawn`, in a process of its own, where one is needed.

Arguments: PARENT TARGET CONVERSATION CORES GROUP, as those of `launch`. Three questions are asked, by seccomp
(seccomp_unotify(2)):

- to open a file for reading, or whether it is there: the sampler opens itself what it may open. A file that its target
  has mapped and the sampler's identity cannot reach (Python in a home directory of mode 0700) is opened here, and given
  to it as a descriptor, or as the answer of stat(2).
- to trace a thread: yes if it is its target's;
- to start a thread: as often as samplers do, and some more; then nothing is answered any more.

A question is a sampler's, so a hostile program's word: a path serves only to find among the target's mappings the inode
that it stands for, and nothing else is ever handed over.
"""

# It has to be there before the sampler is: nothing here needs typing or contextlib.

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import signal
import stat
import struct
from collections.abc import Callable

from profd.kernel import capabilities
from profd.sources.pyspy.launch import enter, stay_on

_RIGHTS = 1 << 19 | 1 << 2  # CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH
_PATH_BYTES_MAX = 4096
_MAPS_BYTES_MAX = 16 << 20
_PAGE = 4096
_PR_SET_PDEATHSIG = 1
_SYS_PIDFD_GETFD = 438
_SYS_OPENAT2 = 437
_PTRACE = {"x86_64": 101, "aarch64": 117}
_CLONE = {"x86_64": 56, "aarch64": 220}
_THREADS_MAX = 16  # limits.SAMPLER_THREADS_MAX, which takes too long to import
_OPENS = {"x86_64": {2: 0, 257: 1}, "aarch64": {56: 1}}  # the call -> where its path is: open, openat
_STATS = {"x86_64": {4: 0, 262: 1}, "aarch64": {79: 1}}  # stat, newfstatat; then the buffer
_RECEIVE = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV
_SEND = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND
_ADD = 0x40182103  # SECCOMP_IOCTL_NOTIF_ADDFD
_VALID = 0x40082102  # SECCOMP_IOCTL_NOTIF_ID_VALID
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_RESOLVE = 0x02 | 0x10  # RESOLVE_NO_MAGICLINKS, RESOLVE_IN_ROOT

_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = _libc.process_vm_writev.restype = ctypes.c_ssize_t


class Question:
    """One call that waits for its answer: struct seccomp_notif."""

    def __init__(self, raw: bytes) -> None:
        self.id, self.thread, _, self.call, _, _, *self.arguments = struct.unpack("=QIIiIQ6Q", raw)


def main(arguments: list[str]) -> None:
    """Take over the listener of the sampler that introduces itself, and answer until that has ended."""
    parent, target, conversation = (int(value) for value in arguments[:3])
    enter(arguments[4])
    stay_on(arguments[3])
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    held = capabilities.permitted() & _RIGHTS
    capabilities.hold(held, held)
    said = os.read(conversation, 64)
    if os.getppid() != parent or not said:
        return
    sampler, descriptor = (int(word) for word in said.split())
    listener = _take(sampler, descriptor)
    os.write(conversation, b"+")
    os.close(conversation)
    Warden(target, listener).answer()


def _take(process: int, descriptor: int) -> int:
    holder = os.pidfd_open(process)
    taken = int(_libc.syscall(*map(ctypes.c_long, (_SYS_PIDFD_GETFD, holder, descriptor, 0))))
    if taken < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    os.close(holder)
    return taken


class Warden:
    """Of one sampler of one target."""

    def __init__(self, target: int, listener: int) -> None:
        self._target = target
        self._listener = listener
        self._inside = f"/proc/{target}/root".encode()
        self._root = -1
        self._mapped: dict[bytes, tuple[int, int]] = {}  # path -> device, inode
        machine = os.uname().machine
        self._ptrace, self._opens, self._stats = _PTRACE[machine], _OPENS[machine], _STATS[machine]
        self._clone, self._threads = _CLONE[machine], 0

    def answer(self) -> None:
        """Until the sampler has ended."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while self._threads <= _THREADS_MAX and not any(
            events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll()
        ):
            try:
                self._decide(Question(fcntl.ioctl(self._listener, _RECEIVE, bytes(80))))
            except FileNotFoundError:  # who asked is gone
                continue

    def _decide(self, question: Question) -> None:
        if question.call == self._clone:
            self._threads += 1
            if self._threads <= _THREADS_MAX:
                self._send(question, 0, 0, _CONTINUE)
            return
        if question.call == self._ptrace:
            thread = question.arguments[1]
            if os.path.exists(f"/proc/{self._target}/task/{thread}"):
                self._send(question, 0, 0, _CONTINUE)
            else:
                self._send(question, 0, -errno.EPERM, 0)
            return
        looks = question.call in self._stats
        place = (self._stats if looks else self._opens)[question.call]
        file = self._file(_text(question.thread, question.arguments[place]))
        if file is None:
            self._send(question, 0, 0, _CONTINUE)  # with its own rights, whatever the path is by then
            return
        try:
            if looks:
                fcntl.ioctl(self._listener, _VALID, struct.pack("=Q", question.id))  # it waits, so the number is its
                _put(question.thread, question.arguments[place + 1], _stat(os.fstat(file)))
                self._send(question, 0, 0, 0)
            else:
                how = bytearray(struct.pack("=QIIII", question.id, 0, file, 0, os.O_CLOEXEC))
                self._send(question, fcntl.ioctl(self._listener, _ADD, how), 0, 0)
        finally:
            os.close(file)

    def _send(self, question: Question, value: int, error: int, flags: int) -> None:
        fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", question.id, value, error, flags))

    def _file(self, path: bytes) -> int | None:
        """Open what the target has mapped from there; None for everything else."""
        if path.startswith(self._inside + b"/"):
            path = path.removeprefix(self._inside)
        if not path.startswith(b"/") or path.startswith(b"/proc/"):
            return None
        try:
            inode = self._mapping(path)
            return None if inode is None else self._open(path, inode)
        except OSError:  # the sampler hears why from its own try
            return None

    def _mapping(self, path: bytes) -> tuple[int, int] | None:
        if path not in self._mapped:  # new, or loaded since
            with open(f"/proc/{self._target}/maps", "rb") as maps:
                self._mapped = dict(_mappings(maps.read(_MAPS_BYTES_MAX)))
        return self._mapped.get(path)

    def _open(self, path: bytes, inode: tuple[int, int]) -> int | None:
        if self._root < 0:
            self._root = os.open(self._inside, os.O_PATH | os.O_CLOEXEC)
        how = struct.pack("=QQQ", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0, _RESOLVE)
        number, root, size = (ctypes.c_long(value) for value in (_SYS_OPENAT2, self._root, len(how)))
        file = int(_libc.syscall(number, root, path, how, size))
        if file < 0:
            return None
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) == inode:
            return file
        os.close(file)
        return None


def _mappings(maps: bytes) -> list[tuple[bytes, tuple[int, int]]]:
    """Mappings of files, from lines as `start-end r-xp offset 08:01 1234 /path`."""
    found = []
    for line in maps.split(b"\n"):  # of all line ends the kernel escapes this one in names
        words = line.split(None, 5)
        if len(words) == 6 and words[4] != b"0":
            major, _, minor = words[3].partition(b":")
            found.append((words[5], (os.makedev(int(major, 16), int(minor, 16)), int(words[4]))))
    return found


def _stat(found: os.stat_result) -> bytes:
    """As the kernel's struct stat, but for the times."""
    inode, owner = (found.st_dev, found.st_ino), (found.st_uid, found.st_gid)
    if os.uname().machine == "x86_64":
        head = struct.pack("=QQQIIIIQ", *inode, found.st_nlink, found.st_mode, *owner, 0, 0)
        return head + struct.pack("=qqq72x", found.st_size, found.st_blksize, found.st_blocks)
    head = struct.pack("=QQIIIIQQ", *inode, found.st_mode, found.st_nlink, *owner, 0, 0)
    return head + struct.pack("=qiiq56x", found.st_size, found.st_blksize, 0, found.st_blocks)


def _text(process: int, address: int) -> bytes:
    """The string at an address of a process; empty where there is none."""
    text = b""
    while len(text) < _PATH_BYTES_MAX:
        part = ctypes.create_string_buffer(_PAGE - (address + len(text)) % _PAGE)  # the next page may not be there
        got = _move(_libc.process_vm_readv, process, address + len(text), part)
        if got <= 0:
            return b""
        text += part.raw[:got]
        if b"\0" in text:
            return text.partition(b"\0")[0]
    return b""


def _put(process: int, address: int, what: bytes) -> None:
    """Where it cannot be written, nothing is: who asked gave an address that is none."""
    _move(_libc.process_vm_writev, process, address, ctypes.create_string_buffer(what, len(what)))


def _move(call: Callable[..., int], process: int, address: int, here: ctypes.Array[ctypes.c_char]) -> int:
    local = struct.pack("@PN", ctypes.addressof(here), len(here))
    remote = struct.pack("@PN", address % (1 << 64), len(here))
    one = ctypes.c_ulong(1)
    return int(call(process, local, one, remote, one, ctypes.c_ulong(0)))
