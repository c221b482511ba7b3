"""What nobody may leave behind once all captures have ended: processes, files, sockets, memory, stopped targets."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from soak import victims
from soak.rig import Rig

_PATIENCE_SECONDS: Final = 90.0  # an agent that has lost its daemon tries again for 15 s
_PASSING: Final = ("traces/.*", "gates/*/out/.*", "gates/*/out/tmp/*")
_LINKS: Final = "gates/*/in/**/*"  # their directories stay
_WORKERS: Final = 2
_WAITING: Final = ("streamer", "porter", "dropper", "errand")  # for more of the same user
_SHARED: Final = Path("/dev/shm")


def baseline(rig: Rig) -> frozenset[str]:
    """Names beside the state directory of a daemon that has just been started: its sockets."""
    folder = rig.found.directory
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_socket())


def settled(rig: Rig, uids: frozenset[int], sockets: frozenset[str]) -> list[str]:
    """What is still there after a while; empty is good."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        found = [*_processes(rig), *_files(rig, sockets), *_shared(uids), *_targets(rig)]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _processes(rig: Rig) -> Iterator[str]:
    """We are the subreaper: whatever outlives its parent becomes our child."""
    daemon = rig.found.running.process.pid
    for pid in victims.children()[os.getpid()]:
        if pid != daemon and pid not in rig.jobs:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == pid:
                    continue
            yield f"process {pid} has outlived its parent: {_name(pid)}"
    workers = 0
    for pid in victims.below(daemon):
        role = victims.role(pid)
        workers += role == "worker"
        if role not in ("worker", *_WAITING):
            yield f"process {pid} of the daemon: {_name(pid)}"
    if workers != _WORKERS:
        yield f"{workers} workers"


def _files(rig: Rig, sockets: frozenset[str]) -> Iterator[str]:
    state = rig.found.running.state_dir
    for pattern in _PASSING:
        yield from (f"{path} is left" for path in state.glob(pattern))
    yield from (f"{path} is left" for path in state.glob(_LINKS) if not path.is_dir())
    for file in state.glob("journal/*/*/[!.]*"):
        if file.stat().st_size:  # an empty one waits for a program that may come back
            yield f"{file} is left"
    if (gates := len(list((state / "gates").iterdir()))) != _WORKERS:
        yield f"{gates} gates"
    if baseline(rig) != sockets:
        yield f"sockets {sorted(baseline(rig) ^ sockets)} are more or fewer than before"


def _shared(uids: frozenset[int]) -> Iterator[str]:
    for path in _SHARED.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_uid in uids or "profd" in path.name:
                yield f"{path} is left"


def _targets(rig: Rig) -> Iterator[str]:
    """Programs that live are as they were: they run, nobody traces them, and no arena is in them or in the daemon."""
    for job in list(rig.jobs.values()):
        with contextlib.suppress(FileNotFoundError):
            said = dict(line.split(":\t", 1) for line in Path(f"/proc/{job.pid}/status").read_text().splitlines())
            if said["State"][0] in "tT" or said["TracerPid"] != "0":
                yield f"target {job.pid} is {said['State']}, traced by {said['TracerPid']}"
    daemon = rig.found.running.process.pid
    for pid in (daemon, *victims.having(daemon, "streamer"), *victims.having(daemon, "porter"), *rig.jobs):
        yield from (f"{name} is open in {pid}" for name in _arenas(pid))


def _arenas(pid: int) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, PermissionError):  # only root sees a porter's
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                name = os.readlink(f"/proc/{pid}/fd/{fd}")
                if "memfd:profd-arena" in name:  # what streamers say last is in one, too
                    yield name


def _name(pid: int) -> str:
    return victims.command(pid).replace(b"\0", b" ").decode(errors="replace")[:200] or "(zombie)"
