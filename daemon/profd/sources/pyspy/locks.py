"""Which thread holds the lock that another waits for: `profctl where`. Run by `tool.spawn` as a sampler is.

Arguments: as those of `launch`, without a command, then the threads. Prints a line `THREAD HOLDER` for each of them
that waits for a lock whose holder is sure; HOLDER is `thread N`, or `ident N` as pthread_self gives it. Or `gil`: it
waits for the interpreter's lock, and py-spy knows who has that.

Two locks say who holds them. A mutex of glibc has its owner beside the word that waiters sleep on. threading.RLock
has it in its object, which the waiter has a pointer to on its stack: what looks like one there is taken for it only if
it is of the type `_thread.RLock` and its lock is the very word. Nothing says who holds a threading.Lock, nor, from
CPython 3.14 on, which word belongs to an RLock. The GIL is in the interpreter's own data (_PyRuntime), where nothing
else is that a thread sleeps on: CPython allocates all its other locks.
"""

# It reads hostile memory, with the rights of a sampler and none of the daemon's: docs/security.md, "Samplers".

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator

from profd.kernel import futex
from profd.sources.pyspy import launch

STACK_BYTES = 16384  # of the waiter, from its stack pointer on
POINTERS_MAX = 2048
_PAGE = 4096
_CONTENDED, _TAKEN = (
    2,
    0,
)  # what glibc's mutexes wait on (lowlevellock.h), and its semaphores, which are CPython's locks
_MUTEX = struct.Struct("=iIiIi")  # pthread_mutex_t: lock, count, owner, users, kind
_KINDS = range(4)  # normal, recursive, errorcheck, adaptive; neither robust nor priorities
_OBJECT = struct.Struct("=QQQQQ")  # rlockobject of CPython 3.8 to 3.13: references, type, lock, owner, count
_TYPE_NAME = 24  # tp_name of PyTypeObject
_RLOCK = b"_thread.RLock\0"

MAPS_BYTES = 4 << 20
_MAPS = 0  # no thread
_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t


class _Span(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def main(arguments: list[str]) -> None:
    """Give up what a sampler may not have, look, and end."""
    target, threads = int(arguments[2]), [int(word) for word in arguments[launch.ARGUMENTS :]]
    paths = {thread: f"task/{thread}/syscall" for thread in threads} | {_MAPS: "maps"}
    files: dict[int, int] = {}
    _open(target, paths, files)  # root's are open to root alone, users' to themselves
    launch.confined(arguments[: launch.ARGUMENTS])
    _open(target, paths, files)
    interpreter = _interpreter(files.pop(_MAPS)) if _MAPS in files else []
    found = holders(target, files, interpreter)
    os.write(1, "".join(f"{thread} {holder}\n" for thread, holder in found).encode())
    os._exit(0)  # Python's own end asks for more system calls than there are


def _open(target: int, paths: dict[int, str], files: dict[int, int]) -> None:
    """What each thread asks the kernel for, and the mappings, as descriptors."""
    for key, path in paths.items():
        with contextlib.suppress(OSError):
            if key not in files:
                files[key] = os.open(f"/proc/{target}/{path}", os.O_RDONLY | os.O_CLOEXEC)


def _interpreter(maps: int) -> list[range]:
    """Where the interpreter's own data lies."""
    said = b""
    with contextlib.suppress(OSError):
        while len(said) < MAPS_BYTES and (part := os.read(maps, 1 << 16)):
            said += part
    return futex.interpreter_data(said)


def holders(target: int, calls: dict[int, int], interpreter: list[range]) -> Iterator[tuple[int, str]]:
    """Thread -> holder, for those that wait for the same lock before and after it was looked at."""
    for thread, call in calls.items():
        waits = _waits(call)
        if waits is None:
            continue
        word, value, stack = waits
        if any(word in data for data in interpreter):
            yield thread, "gil"  # it waits anew every 5 ms, on one of two words: another look says no more
            continue
        holder = ""
        if value == _CONTENDED:
            holder = _of_mutex(target, word)
        elif value == _TAKEN:
            holder = _of_rlock(target, word, stack)
        if holder and waits == _waits(call):
            yield thread, holder


def _waits(call: int) -> tuple[int, int, int] | None:
    """As `futex.waits`."""
    try:
        return futex.waits(os.pread(call, 256, 0))
    except OSError:
        return None


def _of_mutex(target: int, word: int) -> str:
    raw = _read(target, word, _MUTEX.size)
    if len(raw) < _MUTEX.size:
        return ""
    lock, _, owner, users, kind = _MUTEX.unpack(raw)
    sure = lock == _CONTENDED and users > 0 and kind in _KINDS and owner > 0
    return f"thread {owner}" if sure and os.path.exists(f"/proc/{target}/task/{owner}") else ""


def _of_rlock(target: int, word: int, stack: int) -> str:
    seen = b"".join(_pages(target, stack))
    pointers = {at for (at,) in struct.iter_unpack("=Q", seen[: len(seen) & ~7]) if at % 8 == 0 and at >> 16}
    for at in sorted(pointers)[:POINTERS_MAX]:
        raw = _read(target, at, _OBJECT.size)
        if len(raw) < _OBJECT.size:
            continue
        _, kind, lock, owner, count = _OBJECT.unpack(raw)
        if lock == word and owner and count and _type_name(target, kind) == _RLOCK:
            return f"ident {owner}"
    return ""


def _type_name(target: int, kind: int) -> bytes:
    at = _read(target, kind + _TYPE_NAME, 8)
    return _read(target, int.from_bytes(at, "little"), len(_RLOCK)) if len(at) == 8 else b""


def _pages(target: int, at: int) -> Iterator[bytes]:
    """From there to STACK_BYTES on, or to the end of what is mapped."""
    end = at + STACK_BYTES
    while at < end:
        length = min(_PAGE - at % _PAGE, end - at)
        page = _read(target, at, length)
        yield page
        if len(page) < length:
            return
        at += length


def _read(target: int, at: int, length: int) -> bytes:
    """So many bytes of its memory; fewer, or none, where they are not there."""
    if not 0 < at < 1 << 63:
        return b""
    raw = ctypes.create_string_buffer(length)
    here, there = _Span(ctypes.addressof(raw), length), _Span(at, length)
    got = _libc.process_vm_readv(
        ctypes.c_int(target), ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
    )
    return raw.raw[: max(0, got)]
