"""A process that holds the lock of a file's inode, or a directory's, until it is let go; and what comes of that.

It writes to the file (reads the directory) from (to) a page of a file that a FUSE file system of its own does not
answer for: the kernel takes the lock first, and then waits for the page.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.dead_files import dead_files, why_not
from tests.support.in_proc import of_threads
from tests.support.waiting import until

__all__ = ["locked", "locked_names", "locked_renames", "why_not"]

_DOES = """
page = os.open("page.bin", os.O_RDONLY)
memory = mmap.mmap(page, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
held = os.open({path!r}, {flags})
if {directory}:
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    call = lambda: ctypes.CDLL(None).syscall(ctypes.c_long({getdents64}), held, ctypes.c_void_p(at), 4096)
else:
    call = lambda: os.write(held, memory)
threading.Thread(target=call, daemon=True).start()
"""
_GETDENTS64 = {"x86_64": 217, "aarch64": 61}


@contextlib.contextmanager
def locked(path: str | Path, folder: Path, uid: int = 0) -> Iterator[int]:
    """The pid of who holds it; `folder` is made for its file system. `path` may be /proc/PID/fd/N, which is opened."""
    directory = Path(path).is_dir()
    flags = os.O_RDONLY | os.O_DIRECTORY if directory else os.O_RDWR
    number = _GETDENTS64[os.uname().machine]
    does = _DOES.format(path=str(path), flags=flags, directory=directory, getdents64=number)
    with dead_files(folder, uid, "READ:page.bin", does=does) as holder:
        until(lambda: _waits(holder.pid), "it has the lock and waits for its page")
        yield holder.pid


@contextlib.contextmanager
def locked_names(directory: Path, folder: Path, uid: int) -> Iterator[tuple[int, int]]:
    """All names of a directory in which this user makes some: the pid of who keeps a file there, and of who removes it.

    Who removes it has the directory's lock, and waits for that of the file. `folder` is as above.
    """
    with _kept(directory / "mine", folder, uid, "os.unlink({mine!r})", "unlink") as pids:
        yield pids


@contextlib.contextmanager
def locked_renames(disk: Path, folder: Path, uid: int) -> Iterator[tuple[int, int]]:
    """All renames between directories of a file system, at whose `disk` this user gets two: as above."""
    here, there = (disk / f"{uid}-{number}" for number in range(2))
    for directory in (here, there):
        directory.mkdir()
        os.chown(directory, uid, uid)
    with _kept(here / "mine", folder, uid, f"os.rename({{mine!r}}, {str(there / 'mine')!r})", "rename") as pids:
        yield pids


@contextlib.contextmanager
def _kept(mine: Path, folder: Path, uid: int, call: str, waits_in: str) -> Iterator[tuple[int, int]]:
    """The pid of who keeps a file of this user's, and of who waits for it in a call about it."""
    mine.touch()
    os.chown(mine, uid, uid)
    does = f"import os; os.setgroups([]); os.setgid({uid}); os.setuid({uid}); {call.format(mine=str(mine))}"
    with contextlib.ExitStack() as behind, locked(mine, folder, uid) as holder:
        waiting = behind.enter_context(subprocess.Popen([sys.executable, "-I", "-c", does]))
        until(lambda: waits_in in Path(f"/proc/{waiting.pid}/wchan").read_text(), "it waits for the file")
        yield holder, waiting.pid


def _waits(pid: int) -> bool:
    """Whether one of its threads waits for the file system's answer."""
    return "request_wait_answer" in of_threads(pid, "wchan").values()
