"""Surroundings that programs meet: filters, full and read-only places, limits, changes of identity, exec, stops."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Final

from kindness.cases import Case, judge_all
from kindness.daemons import daemons
from kindness.ledger import Ledger, Skipped

NAME: Final = "surroundings"
CASES: Final = (
    Case("seccomp", "surroundings/seccomp.py", ("200",)),
    Case("full /dev/shm", "surroundings/full_shm.py", ("200",)),
    Case("read-only HOME", "surroundings/read_only_home.py", ("200",)),
    Case("LD_PRELOAD", "surroundings/preloaded.py", ("200",)),
    Case("-I, -S, -E", "surroundings/isolated.py", ("150",)),
    Case("memory cgroup of 50 MiB", "ballast.py", ("10", "0.002"), memory_bytes=50 << 20, same=False),
    Case("RLIMIT_AS", "surroundings/few_bytes.py", ("900",)),
    Case("RLIMIT_NOFILE", "surroundings/few_files.py", ("900",)),
    Case("RLIMIT_NPROC", "surroundings/few_processes.py", ("900",)),
    Case("chroot without /proc", "surroundings/no_proc.py", ("200",)),
    Case("setuid drop", "surroundings/dropped.py", ("200",)),
    Case("daemonizing", "surroundings/daemonized.py", ("200",)),
    Case("closing all descriptors", "surroundings/closed.py", ("200",)),
    Case("exec", "surroundings/execed.py", ("200",)),
    Case("5,000 short threads", "surroundings/many_threads.py"),
    Case("SIGSTOP and SIGCONT", "surroundings/stopped.py", ("200",)),
)


def run(ledger: Ledger, deadline: float, seed: int, name: str = NAME) -> None:
    """Each of them once, with a daemon that serves every user."""
    if os.geteuid() != 0:
        ledger.add(Skipped(NAME, "all", "mounts, chroot and other users need root"))
        return
    with daemons(user=False) as found:
        judge_all(ledger, NAME, Path(sys.executable), found, random.Random(seed), CASES)
