"""Makes the processes of errands, each by a fork of this one, which is small and has one thread.

Run as `python -P -m profd.targets.errands.server FD GROUP` by `office.Errands`: executed afresh, it has nothing of the
daemon's memory, and of its descriptors one end of a socket. A message on that says what for (`words.FOR_FILES`,
`FOR_NAMES`) and brings an end of a conversation; the answer is the number and the pidfd of the process that serves it.
Never touches a file of a target itself, so it ends with its daemon whatever its children wait for, and they with it.
"""

from __future__ import annotations

import array
import ctypes
import gc
import os
import resource
import signal
import socket
import struct
import sys
from typing import Final

from profd.kernel import joining
from profd.kernel.rights import received_descriptors
from profd.targets.errands import calls, words, work

# Of the daemon's rights those that opening, reading and removing the files of others takes:
# CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_SYS_PTRACE
_RIGHTS: Final = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 19
_CAPABILITIES: Final = 64
_CAPABILITY_VERSION_3: Final = 0x20080522
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_MEMORY_BYTES: Final = 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)


def main(argv: list[str]) -> int:
    """Give up what errands do not need, then make processes until the daemon closes the socket."""
    asked = socket.socket(fileno=int(argv[1]))
    joining.join(argv[2])
    _confine()
    steps = {words.FOR_FILES: calls.program(), words.FOR_NAMES: calls.program(naming=True)}
    own = os.getpid()
    gc.collect()
    gc.freeze()  # what is shared with the children stays so
    while True:
        data, ancillary, _, _ = asked.recvmsg(16, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        fds = received_descriptors(ancillary)
        if not data:
            return 0
        try:
            pid = os.fork()
        except OSError as error:
            asked.send(f"-{error.errno}".encode())
        else:
            if not pid:
                _serve(own, asked, fds[0], steps[data])
            _tell(asked, pid)
        for fd in fds:
            os.close(fd)


def _serve(parent: int, asked: socket.socket, end: int, steps: bytes) -> None:
    """In the child, which does not come back."""
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        asked.close()
        os.dup2(1, 2)  # which is nothing: not to hold the daemon's log when this cannot end
        if os.getppid() == parent:
            conversation = socket.socket(fileno=end)
            _forbid(steps)
            work.serve(conversation)
    finally:
        os._exit(0)


def _tell(asked: socket.socket, pid: int) -> None:
    pidfd = os.pidfd_open(pid)  # it waits for its first question, so it is there
    try:
        rights = array.array("i", [pidfd])
        asked.sendmsg([str(pid).encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    finally:
        os.close(pidfd)


def _confine() -> None:
    os.setsid()  # the terminal's Ctrl-C is the daemon's
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps: nobody here waits for anybody
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    for capability in range(_CAPABILITIES):
        if not _RIGHTS >> capability & 1:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EPERM without CAP_SETPCAP: no_new_privs covers it
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _must("set no_new_privs", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _keep_capabilities()
    _must("be undumpable", _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def _keep_capabilities() -> None:
    header, data = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), ctypes.create_string_buffer(24)
    _must("read its capabilities", _libc.capget(header, data))
    held = struct.unpack("=6I", data.raw)[1] & _RIGHTS
    _must("give up its capabilities", _libc.capset(header, struct.pack("=6I", held, held, 0, 0, 0, 0)))


def _forbid(program: bytes) -> None:
    """Leave only the calls of `calls`; no filter where its tables do not know the machine."""
    if not program:
        return
    steps = ctypes.create_string_buffer(program, len(program))
    argument = struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    number = ctypes.c_long(_SECCOMP[os.uname().machine])
    _must("forbid itself system calls (seccomp)", _libc.syscall(number, ctypes.c_long(1), ctypes.c_long(0), argument))


def _must(what: str, result: int) -> None:
    if result != 0:
        raise SystemExit(f"errands could not {what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv))
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(0)  # the daemon closed its end; there is nobody to tell
