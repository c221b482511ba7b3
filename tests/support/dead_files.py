"""A process whose files lie on a file system that stops to answer.

The file system is FUSE, spoken raw (linux/fuse.h) and mounted in a mount namespace of the process's own, so that nobody
but who goes through /proc/PID/root sees it. Every name is there: one with a dot is a file of the process's user, any
other a folder. Requests of the kinds that are named are read and never answered, which SIGKILL does not end; with a
name (`OPEN:version.py`) only those about the file that was found by it. Where WRITE is among them the kernel keeps what
is written, and asks for it to be taken when it likes, or when a file is closed that was opened before.
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

from tests.support.stuck_exec import why_not

__all__ = ["DeadFiles", "dead_files", "why_not"]

SIZE: Final = 4096
CONTENT: Final = b"__version__ = '2.13.0'\n".ljust(SIZE, b"\n")
_CODES: Final = {
    "LOOKUP": 1,
    "GETATTR": 3,
    "SETATTR": 4,
    "UNLINK": 10,
    "OPEN": 14,
    "READ": 15,
    "WRITE": 16,
    "STATFS": 17,
    "RELEASE": 18,
    "FLUSH": 25,
    "INIT": 26,
    "OPENDIR": 27,
    "RELEASEDIR": 29,
}
_WRITEBACK_CACHE: Final = 1 << 16
_UNANSWERED: Final = {2, 36, 42}  # FORGET, INTERRUPT, BATCH_FORGET have no answer
_IN: Final = struct.Struct("<IIQQIIII")
_OUT: Final = struct.Struct("<IiQ")
_ATTR: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_CLONE_NEWNS: Final = 0x00020000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_PROGRAM: Final = """
import ctypes, mmap, os, socket, sys, threading, time
uid, folder = int(sys.argv[1]), sys.argv[2]
os.chdir(folder)
if uid:
    os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE
{does}
os.write(1, b"r")
while os.read(0, 1):
    pass
"""


class _Server:
    """Answers the kernel, until the mount goes."""

    def __init__(self, device: int, uid: int, silent: set[str]) -> None:
        self._device = device
        self._uid = uid
        self._silent = silent
        self._names = {1: ""}
        self._flags = _WRITEBACK_CACHE if "WRITE" in silent else 0

    def serve(self) -> None:
        """Until the device ends."""
        while True:
            try:
                request = os.read(self._device, 1 << 17)
            except OSError:
                return
            _length, code, unique, node, *_ = _IN.unpack_from(request)
            word = next((word for word, number in _CODES.items() if number == code), "")
            name = request[_IN.size :].split(b"\0")[0].decode() if word == "LOOKUP" else self._names.get(node, "")
            if code in _UNANSWERED or self._silent & {word, f"{word}:{name}"}:
                continue
            error, body = self._answer(word, node, name)
            with contextlib.suppress(OSError):
                os.write(self._device, _OUT.pack(_OUT.size + len(body), error, unique) + body)

    def _answer(self, word: str, node: int, name: str) -> tuple[int, bytes]:
        if word == "LOOKUP":
            found = next((number for number, known in self._names.items() if known == name), len(self._names) + 1)
            self._names[found] = name
            return 0, struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + self._attributes(found)
        if word == "STATFS":
            return 0, struct.pack("<QQQQQIII", 1 << 30, 1 << 30, 1 << 30, 1 << 20, 1 << 20, 4096, 255, 4096) + bytes(28)
        if word in ("GETATTR", "SETATTR"):
            return 0, struct.pack("<QII", 0, 0, 0) + self._attributes(node)
        answers = {
            "INIT": struct.pack("<IIIIHHII", 7, 31, 0, self._flags, 0, 0, 1 << 16, 1) + bytes(32),
            "OPEN": struct.pack("<QII", 1, 0, 0),
            "OPENDIR": struct.pack("<QII", 1, 0, 0),
            "READ": CONTENT,
        }
        known = word in answers or word in ("RELEASE", "RELEASEDIR", "FLUSH", "UNLINK")
        return (0, answers.get(word, b"")) if known else (-38, b"")

    def _attributes(self, node: int) -> bytes:
        file = "." in self._names[node]
        mode = 0o100755 if file else 0o40777
        return _ATTR.pack(node, SIZE, 8, 0, 0, 0, 0, 0, 0, mode, 1, self._uid, self._uid, 0, 4096, 0)


def _hold(folder: str, uid: int, silent: set[str], does: str) -> None:
    """The process that mounts, serves, and has the program for a child. Says its pid."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):  # os.unshare is Python 3.12's
        raise OSError(ctypes.get_errno(), "unshare")
    libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"profd-test", folder.encode(), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), "mount")
    server = os.fork()
    if server == 0:
        with contextlib.suppress(OSError):
            _Server(device, uid, silent).serve()
        os._exit(0)
    os.close(device)
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.replace("{does}", does), str(uid), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    program.stdout.read(1)
    print(program.pid, flush=True)
    try:
        sys.stdin.read()
    finally:
        program.kill()
        os.kill(server, signal.SIGKILL)  # its device goes with it: the mount is aborted, every waiter is let go
        os.waitpid(server, 0)
        program.wait()


class DeadFiles:
    """A process of `uid` with such a file system at `folder`; `does` is Python that it runs there first."""

    def __init__(self, folder: Path, uid: int, *silent: str, does: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.uid = uid
        self._holder = subprocess.Popen(
            [sys.executable, "-m", __name__, str(folder), str(uid), " ".join(silent), does],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        self.pid = int(self._holder.stdout.readline())

    @property
    def root(self) -> Path:
        """Through which its files are seen."""
        return Path("/proc", str(self.pid), "root")

    def close(self) -> None:
        """End it: the file system goes, and with it what waited for it."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait(120)
        self._holder.stdout.close()


@contextlib.contextmanager
def dead_files(folder: Path, uid: int, *silent: str, does: str = "") -> Iterator[DeadFiles]:
    """One that does not answer requests of these kinds."""
    process = DeadFiles(folder, uid, *silent, does=does)
    try:
        yield process
    finally:
        process.close()


if __name__ == "__main__":
    _hold(sys.argv[1], int(sys.argv[2]), set(sys.argv[3].split()), sys.argv[4])
