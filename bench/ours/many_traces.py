"""A capture of very many traces, asked as the daemon asks it: by its events, and by what was kept of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from profd.importing.pipeline import store_trace
from profd.questions.jobs import DIRECTORIES, INDEXES, JOBS
from profd.questions.library import Library
from profd.segments.meta import TraceMeta, read_meta
from profd.store.store import Store, StoreLimits
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profd.workers import gate
from profd.workers.pool import WorkerPool

CAPTURE, OTHER = "c0000000000001", "c0000000000002"
ASKED: dict[str, dict[str, Any]] = {
    "top": {"limit": 20},
    "top by module": {"limit": 20, "group_by": "module"},
    "steps": {},
    "diff": {"other": OTHER},
}


def fill(path: str, traces: int, root: str) -> dict[str, Any]:
    """A store of two captures of one trace, so many times each but for its name and rank; its bytes."""
    shutil.rmtree(root, ignore_errors=True)
    store = Store(Path(root), StoreLimits(share=1.0, free_share_min=0.0))
    whole = Path(root) / "whole"
    whole.mkdir()
    fd = os.open(path, os.O_RDONLY)
    store_trace(
        {"files": [{"format": "chrome", "label": "x", "fd": 0}], "staging": str(whole), "meta": {}},
        [fd],
        lambda what, share: None,
    )
    for number in range(traces):
        for capture in (CAPTURE, OTHER):
            staging = store.staging()
            shutil.copytree(whole, staging, dirs_exist_ok=True)
            meta = TraceMeta(trace=store.new_id(), capture=capture, rank=number, owner_uid=os.getuid(), source="sdk")
            store.adopt(staging, meta)
    size = store.statistics().bytes
    store.close()
    return {"bytes": size, "events": read_meta(whole).events}


def ask(root: str, times: int) -> dict[str, Any]:
    """Seconds of each question by its events and by rollups, CPU seconds and memory of the latter; bytes kept.

    CPU of the worker and of the daemon's part.
    """
    return asyncio.run(_asked(Path(root), times))


async def _asked(root: Path, times: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with _library(root) as (library, _):
        for what, arguments in ASKED.items():
            found[what] = {"events": await _seconds(library, what.split()[0], arguments)}
        kept = library.store.statistics().bytes
    async with _library(root) as (library, pool):  # a fresh worker: its memory is of these answers alone
        for what, arguments in ASKED.items():
            taken, before = [], _cpu(pool)
            for _ in range(times):
                taken.append(await _seconds(library, what.split()[0], arguments))
            cpu = (_cpu(pool) - before) / times
            found[what] |= {"rollups": sorted(taken)[times // 2], "cpu": cpu, "peak_bytes": _peak(pool)}
    return {"questions": found, "bytes": kept}


@contextlib.asynccontextmanager
async def _library(root: Path) -> AsyncIterator[tuple[Library, WorkerPool]]:
    store = Store(root, StoreLimits(share=1.0, free_share_min=0.0))
    pool = WorkerPool(1, gates=root / gate.FOLDER, known=JOBS, directories=DIRECTORIES, beside=INDEXES)
    await pool.open()
    try:
        yield Library(store, pool.run), pool
    finally:
        await pool.close()
        store.close()


async def _seconds(library: Library, name: str, arguments: dict[str, Any]) -> float:
    me = Caller(os.getuid(), os.getgid(), "me", admin=True, pid=os.getpid())
    callers.enter(me)
    began = time.perf_counter()
    out = os.memfd_create("answer")
    try:
        await library.answer(await library.asked(me, name, "", arguments, CAPTURE), out)
    finally:
        os.close(out)
    return time.perf_counter() - began


def _peak(pool: WorkerPool) -> int:
    (pid,) = pool.pids
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _cpu(pool: WorkerPool) -> float:
    (pid,) = pool.pids
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
