"""Tries TRIES and all system calls from a confined worker: `python -m tests.support.worker_probe MODE`.

MODE: `root` (workers of another uid), `user` (as uid 65534), `user as root`. One JSON object to stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from profd.errors import BadInput
from profd.fairness.shares import Holder
from profd.kernel import identity
from profd.store.store import Store, StoreLimits
from profd.workers.pool import WorkerPool
from profd.workers.turns import JobKind, Turn

from tests.support.attacks import JOBS
from tests.support.in_proc import descriptors
from tests.unit.profd.store.stored import add

NOBODY = 65534


async def probe(state: Path) -> dict[str, Any]:
    pool = WorkerPool(2, known=JOBS, gates=state / "gates", directories=("trace_dir",))
    held = await pool.open()
    store = Store(state, StoreLimits(free_share_min=0.0))
    kineto = state / "kineto"
    kineto.mkdir()
    kineto.chmod(0o1777)
    mine, other = (str(store.directory(add(store).id)) for _ in range(2))
    workers = {worker.pid: worker for worker in pool._live}
    try:
        found: dict[str, Any] = {"held": held, "status": [_status(pid) for pid in workers]}
        await _first_jobs(pool)  # before them workers import
        found["open"] = [_open_files(pid) for pid in workers]
        first = await pool.run("numbers", {})
        found["numbers"] = first["ends"]
        (idle,) = workers.keys() - {first["pid"]}  # a user's next job is the same worker's
        other_gate = workers[idle].gate
        others = {"other_worker": idle, "other_gate": str(other_gate and other_gate.path)}
        paths = {"trace_dir": mine, "stored": other, "state": str(state), "kineto": str(kineto)}
        staging = store.staging()
        found["tries"] = (await pool.run("tries", {**others, **paths, "staging": str(staging)}))["ends"]
        found["alive"] = [worker.alive for worker in workers.values()]
        found["held open"] = await _held_open(pool, store)
    finally:
        await pool.close()
        store.close()
    found["left"] = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    return found


async def _first_jobs(pool: WorkerPool) -> None:
    """One job by each of the two workers, at the same time."""
    turns = [Turn(Holder(uid, False), JobKind.GLANCE) for uid in (5, 6)]
    await asyncio.gather(*(pool.run("pid", {}, turn=turn) for turn in turns))


async def _held_open(pool: WorkerPool, store: Store) -> str:
    """What becomes of a trace that its worker could still change."""
    staging = store.staging()
    await pool.run("keep", {"staging": str(staging)})
    try:
        identity.make_readable(staging)
    except BadInput as error:
        return str(error)
    return "taken"


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {
        name: status[name].strip() for name in ("Uid", "Gid", "Groups", "CapEff", "CapPrm", "NoNewPrivs", "Seccomp")
    }


def _open_files(pid: int) -> list[str]:
    return sorted(name.split(":")[0] for name in descriptors(pid))


def main(mode: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        if mode == "user":
            os.chown(folder, NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        identity.use(identity.choose() if mode == "root" else identity.SAME)
        state = Path(folder) / "state"
        state.mkdir(mode=0o700)
        json.dump(asyncio.run(probe(state)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
