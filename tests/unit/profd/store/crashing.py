"""Dies by SIGKILL at the n-th system interaction of a store's work; run by test_crash.

`python crashing.py BASE [upgrade]`: for n = 1, 2, … a fork works on a copy of the store in
BASE/base, in BASE/<n>, and is killed at its n-th file operation or SQL
statement. One JSON line per n: what the fork had reported until then. Ends when
a fork lives to the end of its work. The interpreter forks before it has threads.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from profd.segments.meta import TraceMeta
from profd.segments.rewrite import rewritten
from profd.store.store import Store, StoreLimits
from profd.store.upgrade import upgrade

NEW = "1zzzzzzzzzzzz"
OPERATIONS = ("open", "os.", "shutil.", "fcntl.", "sqlite3.")


class Fuse:
    """Kills this process at the n-th tick."""

    def __init__(self, ticks: int) -> None:
        self.left = ticks

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, _: object) -> None:
        if event.startswith(OPERATIONS):
            self.tick()


def work(root: Path, fresh: Path, report: int, fuse: Fuse) -> None:
    def tell(what: str) -> None:
        os.write(report, f"{what}\n".encode())

    limits = StoreLimits(free_share_min=0.0)
    store = Store(root, limits)
    store._catalog._db.set_trace_callback(lambda _: fuse.tick())
    pinned, deleted, evicted = sorted(record.id for record in store.newest_first())
    staging = store.staging()
    for entry in sorted(fresh.iterdir()):
        shutil.copy(entry, staging / entry.name)
    tell("storing")
    record = store.adopt(staging, TraceMeta(trace=NEW, owner_uid=7, created_ns=1 << 60))
    tell("stored")
    store.pin(NEW, True)
    tell("pinned")
    store.share(pinned, ["nobody"])
    tell("shared")
    tell("deleting")
    store.delete(deleted)
    tell("deleted")
    store.limits = StoreLimits(bytes=record.bytes + store.get(pinned).bytes, share=1.0, free_share_min=0.0)
    tell("evicting")
    assert store.enforce() == [evicted]
    tell("evicted")
    store.close()


def upgrading(root: Path, fresh: Path, report: int, fuse: Fuse) -> None:
    steps, fuse.left = fuse.left, sys.maxsize  # what comes before is killed by `work`
    store = Store(root, StoreLimits(free_share_min=0.0))
    fuse.left = steps
    store._catalog._db.set_trace_callback(lambda _: fuse.tick())
    upgrade(store, rewritten)
    store.close()


def run(base: Path, number: int, work: Callable[[Path, Path, int, Fuse], None]) -> bool:
    root = base / str(number)
    shutil.copytree(base / "base", root)
    reading, report = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fuse = Fuse(number)
            sys.addaudithook(fuse.audit)
            work(root, base / "fresh", report, fuse)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(report)
    with os.fdopen(reading) as lines:
        told = lines.read().split()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps({"n": number, "status": status, "told": told}), flush=True)
    return status == -signal.SIGKILL


if __name__ == "__main__":
    for number in count(1):
        if not run(Path(sys.argv[1]), number, upgrading if "upgrade" in sys.argv else work):
            break
