"""What a worker that has been taken over may try: jobs for a pool, and `TRIES`, the rows of docs/security.md."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profd.limits import WORKER_FILE_BYTES_MAX
from profd.workers import calls
from profd.workers.jobs import Progress

JOBS = {name: f"tests.support.attacks:{name}" for name in ("pid", "numbers", "tries", "keep", "call")}

CALL_NUMBERS = (*range(600), 1000, 4096, (1 << 31) - 1)
# uretprobe and uprobe of x86_64: the kernel lets no filter see them, and ends whoever calls them (SIGILL).
UNFILTERED = {335, 336}
_X32 = 0x40000000
_NEWUSER, _NEWNS, _THREAD = 0x10000000, 0x00020000, 0x003D0F00
_libc = ctypes.CDLL(None, use_errno=True)


def pid(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Nothing, and by whom."""
    return {"pid": os.getpid()}


def numbers(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """How each call that is not on the list ends, by number."""
    allowed = set(calls.allowed().values()) | UNFILTERED
    tried = [number for number in CALL_NUMBERS if number not in allowed]
    if os.uname().machine == "x86_64":
        tried += [_X32 | number for number in range(600) if number not in UNFILTERED]
    return {"pid": os.getpid(), "ends": {number: _ended(number) for number in tried}}


def call(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """One call, so many times; how the last ended."""
    return {"ended": [_ended(args["number"]) for _ in range(args["times"])][-1]}


def keep(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """Leave a file in the staging directory, and hold it."""
    os.open(Path(args["staging"]) / "held", os.O_CREAT | os.O_WRONLY)
    return {}


def tries(args: dict[str, Any], fds: list[int], progress: Progress) -> dict[str, Any]:
    """How each of TRIES ends: the name of an error, or "worked"."""
    return {"ends": {name: _end_of(attempt, args) for name, attempt in TRIES.items()}}


def _end_of(attempt: Callable[[dict[str, Any]], object], args: dict[str, Any]) -> str:
    try:
        found = attempt(args)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return found if isinstance(found, str) else "worked"


def _ended(number: int, *arguments: int) -> str:
    words = [ctypes.c_long(word) for word in (number, *arguments, 0, 0, 0, 0, 0, 0)[:7]]
    if _libc.syscall(*words) >= 0:
        return "worked"
    return errno.errorcode[ctypes.get_errno()]


def _checked(name: str, *arguments: int) -> str:
    return _ended(calls.allowed()[name], *arguments)


def _first(*ends: str) -> str:
    """All of them are to end in the same way."""
    return ends[0] if len(set(ends)) == 1 else ", ".join(ends)


def _read(path: str | Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(1)


def _write(folder: str | Path) -> None:
    with open(Path(folder) / "profd-probe", "wb"):
        pass


def _too_large(args: dict[str, Any]) -> None:
    with (Path(args["staging"]) / "large").open("wb") as file:
        os.pwrite(file.fileno(), b"x", WORKER_FILE_BYTES_MAX)


def _32_bits(args: dict[str, Any]) -> str:
    """getpid through int 0x80."""
    if os.uname().machine != "x86_64":
        return "ENOSYS"
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))
    found = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    return errno.errorcode[-found] if found < 0 else "worked"


def _raised_limit(args: dict[str, Any]) -> str:
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):  # Python's for EPERM
        return "EPERM"
    return "worked"


def _signals(args: dict[str, Any]) -> str:
    other = args["other_worker"]
    by_fcntl = _checked("fcntl", int(sys.argv[1]), 8, other)  # F_SETOWN
    return _first(_checked("tgkill", other, other, signal.SIGKILL), by_fcntl)


TRIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "read what everybody may read (`/etc/passwd`)": lambda args: _read("/etc/passwd"),
    "read `/etc/shadow`": lambda args: _read("/etc/shadow"),
    "read a stored trace that its job is not about": lambda args: _read(Path(args["stored"]) / "meta.json"),
    "read the catalog": lambda args: _read(Path(args["state"]) / "catalog.sqlite"),
    "list the store, or the gates of other workers": lambda args: _first(
        *(
            _end_of(lambda _, name=name: os.listdir(Path(args["state"]) / name), args)
            for name in (".", "traces", "gates")
        )
    ),
    "read another worker's gate": lambda args: os.listdir(Path(args["other_gate"]) / "in"),
    "change the trace that its job is about": lambda args: os.open(Path(args["trace_dir"]) / "meta.json", os.O_RDWR),
    "write to `/tmp`, `/dev/shm`, `kineto/` or the state directory": lambda args: _first(
        *(_end_of(lambda _, to=to: _write(to), args) for to in ("/tmp", "/dev/shm", args["kineto"], args["state"]))
    ),
    "open its own or another's `/proc/PID/mem`": lambda args: _first(
        *(_end_of(lambda _, pid=pid: _read(f"/proc/{pid}/mem"), args) for pid in ("self", args["other_worker"]))
    ),
    "leave a link or a device in staging": lambda args: _first(
        _end_of(lambda _: os.symlink("/etc/shadow", Path(args["staging"]) / "link"), args),
        _end_of(lambda _: os.link(Path(args["trace_dir"]) / "meta.json", Path(args["staging"]) / "link"), args),
        _end_of(lambda _: os.mkfifo(Path(args["staging"]) / "link"), args),
    ),
    "change the owner or the mode of a file": lambda args: _first(
        _end_of(lambda _: os.chmod(args["staging"], 0o777), args),
        _end_of(lambda _: os.chown(args["staging"], 0, 0), args),
    ),
    "rename a file, which may wait beyond SIGKILL": lambda args: os.rename(args["staging"], f"{args['staging']}.new"),
    "write a file of more than 64 GiB": _too_large,
    "raise its own limits": _raised_limit,
    "fork, or fork twice to outlive the daemon": lambda args: _first(
        _end_of(lambda _: os.fork(), args), _checked("clone", signal.SIGCHLD)
    ),
    "clone into new namespaces": lambda args: _first(
        _checked("clone", _NEWUSER | _NEWNS | signal.SIGCHLD), _checked("clone", _NEWUSER | _THREAD)
    ),
    "run a program": lambda args: os.execv("/bin/true", ["true"]),
    "signal another worker": _signals,
    "read or set another worker's limits": lambda args: _checked("prlimit64", args["other_worker"], 7),
    "change what another process, or all of its user, weigh on a core": lambda args: _first(
        _checked("setpriority", os.PRIO_PROCESS, args["other_worker"], 19), _checked("setpriority", os.PRIO_USER, 0, 19)
    ),
    "open a socket": lambda args: __import__("socket").socket(),
    "send to an address": lambda args: _checked("sendto", int(sys.argv[1]), 0, 0, 0, id(args), 8),
    "ask a device, or seccomp's listener, for anything": lambda args: _first(
        _checked("ioctl", 0, 0x5412), _checked("ioctl", 0, 0xC0182101)
    ),
    "outlive its daemon (`PR_SET_PDEATHSIG`)": lambda args: _checked("prctl", 1),
    "make 32-bit system calls": _32_bits,
}
