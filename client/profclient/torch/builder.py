"""One build for the daemon: `python -P -m profclient.torch.builder`, as the owner of the process that wants it.

The order comes on standard input, as data that the daemon has read from files of the target; the outcome goes to
standard output. It has the owner's uid, no privileges, and nothing of the target's environment: the compiler is the one
on the daemon's PATH, and no interpreter, plugin or program of the target's is run here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from profclient.errors import ClientError
from profclient.priority import give_way
from profclient.streamer.confine import drop_privileges, limit
from profclient.torch import build, builds, notes, private, sources
from profclient.torch.build import Torch
from profclient.torch.builds import Build, Key, Unusable

MEMORY_BYTES_MAX: Final = 3 << 30  # of address space, each of the compiler's processes; it took 0.6 GiB
CPU_SECONDS_MAX: Final = 600  # the same; it took 15
FILE_BYTES_MAX: Final = 512 << 20
_NICE: Final = 19
_PR_SET_PDEATHSIG: Final = 1
_GUARD: Final = 1 << 0  # CAP_CHOWN, which its filter makes nothing of: it keeps its user from tracing it
_IOPRIO_SET: Final = {"x86_64": 251, "aarch64": 30}
_IOPRIO_IDLE: Final = 3 << 13


def main() -> int:
    """Build what is asked for. Always says what became of it, in one line of JSON."""
    confine()
    asked = json.load(sys.stdin)
    said = _built(asked)
    print(json.dumps(said), flush=True)
    return 0


def confine() -> None:
    """The weakest process of the host: last in line for CPU and disk, and for memory until its user says otherwise."""
    _end_with_the_daemon()
    give_way(_NICE)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if number := _IOPRIO_SET.get(platform.machine()):
        ctypes.CDLL(None).syscall(number, 1, 0, _IOPRIO_IDLE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_AS, MEMORY_BYTES_MAX)
    limit(resource.RLIMIT_CPU, CPU_SECONDS_MAX)
    limit(resource.RLIMIT_FSIZE, FILE_BYTES_MAX)
    os.umask(0o077)
    drop_privileges(_GUARD)


def _end_with_the_daemon() -> None:
    """With all compilers, which the kernel would let go on: it tells the daemon's child alone."""
    if os.getpgrp() == os.getpid():  # elsewhere others are in the group, too
        signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _built(asked: dict[str, Any]) -> dict[str, str]:
    """`asked`: `torch`, `git`, `cxx11_abi`, `home`, `cuda`, `cache`, and `root`: what stands before these paths."""
    root = str(asked["root"])  # /proc/self/fd/N, of ourselves and of the compilers: N is inherited
    if root:
        os.set_inheritable(int(root.rpartition("/")[2]), True)
    key = Key(str(asked["torch"]), str(asked["git"]), bool(asked["cxx11_abi"]), platform.machine(), sources.digest())
    torch = Torch("the daemon's builder", Path(root + str(asked["home"])), key, str(asked["cuda"]))
    base = Path(str(asked["cache"]))
    real = base / "profd" / "torch"
    told = {"directory": str(real / key.directory)}
    try:
        with private.place(Path(f"{root}{base}")) as place:
            return {**told, **_in(place, torch, lambda why: _named(why.replace(str(place), str(real)), root))}
    except ClientError as error:  # nothing is known to be the user's own, so nothing is noted there
        return {**told, "state": "failed", "why": _named(str(error), root)}


def _named(why: str, root: str) -> str:
    """Paths as people know them."""
    return why.replace(root, "") if root else why


def _in(place: Path, torch: Torch, told: Callable[[str], str]) -> dict[str, str]:
    """The same in its user's own place. `told`: the failure, in names that people know."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        if build.there(torch, place) is not None:
            return {"state": "built"}
        if (failed := notes.failure(place, torch.key)) is not None:
            return {"state": "failed", "why": failed.why}
        done = _make(torch, place, since)
        return {"state": "built", "without_cuda": done.without_cuda}
    except (ClientError, Unusable, OSError) as error:
        why = told(str(error))
        notes.remember_failure(place, torch.key, since, why)
        return {"state": "failed", "why": why}


def _make(torch: Torch, place: Path, since: str) -> Build:
    """Compile it; what was made is loaded by the target's own rules, so it is looked at by these. Raises."""
    if not (torch.home / "include" / "ATen" / "record_function.h").is_file():
        raise ClientError("the torch has no C++ headers; the observer is built against them")
    notes.sweep(place)
    with notes.building(place, torch.key, since):
        done = build.build(torch, place, private=True)
    builds.check(done, torch.key)
    return done


if __name__ == "__main__":
    sys.exit(main())
