"""A process that is in the middle of execve, and stays there: a file system that does not answer.

The file system is FUSE, spoken raw (linux/fuse.h), mounted by root in a mount namespace of its own: `/held` can be
opened, and its close is never answered. A program that has it open with FD_CLOEXEC and execs waits for that while
it holds the lock of exec, without which the kernel does not tell of `stat`, `environ`, `maps`, links and others.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOOKUP, _GETATTR, _OPEN, _READ, _INIT = 1, 3, 14, 15, 26
_FLUSH: Final = 25
_IN: Final = struct.Struct("<IIQQIIII")
_OUT: Final = struct.Struct("<IiQ")
_ATTR: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_CLONE_NEWNS: Final = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_PROGRAM: Final = """
import ctypes, os, socket, sys
uid = int(sys.argv[1])
libc = ctypes.CDLL(None)
folder = os.open(sys.argv[2], os.O_PATH | os.O_CLOEXEC)
if uid:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
{before}
os.write(1, b"r")
os.read(0, 1)
os.open("held", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
os.execv("/bin/sleep", ["sleep", "1000"])
"""


def _serve(device: int, closing: int) -> None:
    """Answer until the mount goes; a close is noted in `closing` and not answered."""
    while True:
        try:
            request = os.read(device, 1 << 17)
        except OSError:
            return
        _length, code, unique, node, uid, gid, _pid, _ = _IN.unpack_from(request)
        answer = _answer(code, node, uid, gid)
        if code == _FLUSH:
            os.write(closing, b"x")
        elif answer is not None:
            error, body = answer
            with contextlib.suppress(OSError):
                os.write(device, _OUT.pack(_OUT.size + len(body), error, unique) + body)


def _answer(code: int, node: int, uid: int, gid: int) -> tuple[int, bytes] | None:
    if code == _INIT:
        return 0, struct.pack("<IIIIHHII", 7, 31, 0, 0, 0, 0, 1 << 16, 1) + bytes(32)
    if code == _LOOKUP:
        return 0, struct.pack("<QQQQII", 2, 0, 0, 0, 0, 0) + _attributes(2)
    if code == _GETATTR:
        return 0, struct.pack("<QII", 0, 0, 0) + _attributes(node)
    if code == _OPEN:
        return 0, struct.pack("<QII", 1, 0, 0)
    return (-38, b"") if code not in (_FLUSH, 2, 18, 36) else None


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    return _ATTR.pack(node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _hold(folder: str, uid: int, before: str) -> None:
    """The process that mounts, serves, and has the program for a child. Says its pid, and when it is stuck."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):  # os.unshare is Python 3.12's
        raise OSError(ctypes.get_errno(), "unshare")
    libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"profd-test", folder.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    heard, closing = os.pipe()
    server = os.fork()
    if server == 0:
        with contextlib.suppress(OSError):
            _serve(device, closing)
        os._exit(0)
    os.close(device)
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.replace("{before}", before), str(uid), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdout.read(1)
    _say(f"pid {program.pid}")
    try:
        for line in sys.stdin:
            if line.strip() == "exec":
                program.stdin.write(b"x")
                program.stdin.flush()
                os.read(heard, 1)  # the kernel asks for the close: exec's lock is held
                _say("stuck")
    finally:
        program.send_signal(signal.SIGKILL)
        os.kill(server, signal.SIGKILL)  # its device goes with it: the mount is aborted, every waiter is let go
        os.waitpid(server, 0)
        program.wait()


def _say(text: str) -> None:
    print(text, flush=True)


def why_not() -> str:
    """Why there can be none here: a sentence, or empty."""
    if os.geteuid() != 0:
        return "mounting takes root"
    return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) else "there is no /dev/fuse"


class StuckProcess:
    """A process of `uid` that can be made to hang within execve, with `hang`; `before` is Python that it runs first."""

    def __init__(self, folder: Path, uid: int = 0, before: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self._holder = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), str(uid), before],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = int(self._line().removeprefix("pid "))

    def hang(self) -> None:
        """It execs, and is stuck when this returns."""
        assert self._holder.stdin is not None
        self._holder.stdin.write("exec\n")
        self._holder.stdin.flush()
        assert self._line() == "stuck"

    def close(self) -> None:
        """End it: the file system goes, and with it what waited for it."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait(120)
        self._holder.stdout.close()

    def _line(self) -> str:
        assert self._holder.stdout is not None
        return self._holder.stdout.readline().strip()


@contextlib.contextmanager
def stuck_process(folder: Path, uid: int = 0, before: str = "") -> Iterator[StuckProcess]:
    """One that hangs within execve."""
    process = StuckProcess(folder, uid, before)
    try:
        process.hang()
        yield process
    finally:
        process.close()


if __name__ == "__main__":
    _hold(sys.argv[1], int(sys.argv[2]), sys.argv[3])
