"""Raw files to a trace in the store: one job in a worker, then adoption."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from profd.disk.space import Claim, Urgency
from profd.errors import BadInput, ProfdError
from profd.fairness.to_the_end import or_undone, to_the_end
from profd.limits import DISK_LOOK_SECONDS, DISK_STEP_BYTES, TRACE_FILE_BYTES_MAX
from profd.model.capture import Phase
from profd.model.text import printable_text
from profd.segments.meta import TraceMeta
from profd.store.catalog import TraceRecord
from profd.store.store import Store
from profd.workers import gate
from profd.workers.watched import watched

log = logging.getLogger("profd.store")

# What a Chrome trace is to be read as, and by which decoder.
DIALECTS: Final = {"": "", "torch-legacy": "torch-legacy"}
_TITLE_CHARACTERS: Final = 4096

OnProgress = Callable[[str, float], None]


class RunJob(Protocol):
    """`WorkerPool.run`, or the same in this process."""

    async def __call__(
        self, job: str, args: dict[str, Any], fds: Sequence[int] = (), on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Run a job of `workers/jobs.py`; raises ProfdError."""
        ...


@dataclass(frozen=True, slots=True)
class Input:
    """An open raw file, its format (empty: by its content) and a label for messages. The fd stays the caller's."""

    fd: int
    format: str
    label: str


def format_of(dialect: str) -> str:
    """The format that a dialect of a Chrome trace is read as; empty (by its content) for none. BadInput otherwise."""
    if dialect not in DIALECTS:
        raise BadInput(f'There is no dialect "{dialect}"; known is {", ".join(name for name in DIALECTS if name)}.')
    return DIALECTS[dialect]


def open_raw(path: Path) -> int:
    """Open a raw file of ours for reading. BadInput unless it is regular and within TRACE_FILE_BYTES_MAX."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        check_raw(fd, str(path))
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_raw(fd: int, label: str) -> None:
    """BadInput unless an open file is one that can be decoded."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{label} is not a regular file.")
    if found.st_size > TRACE_FILE_BYTES_MAX:
        raise BadInput(f"{label} has {found.st_size} bytes, {TRACE_FILE_BYTES_MAX} are allowed.")


async def ingest(
    store: Store,
    run_job: RunJob,
    inputs: Sequence[Input],
    meta: TraceMeta,
    on_progress: OnProgress | None = None,
    on_stored: Callable[[TraceRecord], None] = lambda record: None,
) -> tuple[TraceRecord, dict[str, Any]]:
    """Decode and store; the trace is visible and durable on return, or there is none.

    `on_stored` is told of it, in a thread, also where the caller is cancelled meanwhile: the trace is there then, too.
    `meta` says who and what; its id is given here. Returns the record and the
    job's own result. Raises what the job and `Store.adopt` raise.
    """
    meta.trace = await asyncio.to_thread(store.new_id)
    meta.created_ns = meta.created_ns or time.time_ns()
    meta.title = printable_text(meta.title, _TITLE_CHARACTERS)
    urgency = Urgency.STORING if meta.capture and meta.source != "import" else Urgency.NEW
    staging = await or_undone(asyncio.to_thread(store.staging, urgency), store.discard)
    with store.space.claim(meta.owner_uid, "the trace of this", urgency) as claim:
        try:
            started = time.perf_counter_ns()
            fds = [file.fd for file in inputs]
            raw = sum(os.fstat(fd).st_blocks * 512 for fd in fds)
            claim.hold(0, min(raw, DISK_STEP_BYTES), raw)
            job = run_job("store_trace", _arguments(inputs, staging, meta), fds, on_progress)
            result = await _within(claim, lambda: _written(store, staging), job)
            meta.waterfall = [*meta.waterfall, *_phases(time.perf_counter_ns() - started, result)]
            let_go = await store.turn.get(meta.owner_uid)
        except BaseException:
            await to_the_end(asyncio.to_thread(store.discard, staging))
            raise
        try:
            return await to_the_end(asyncio.to_thread(_settle, store, staging, meta, on_stored)), result
        finally:
            let_go()


async def _within(claim: Claim, written: Callable[[], int], job: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The result of a job that has `written` so many bytes; it is ended when the disk runs short, as `hold` raises."""
    hold = lambda: claim.hold(written(), 1)  # noqa: E731
    return await watched(job, DISK_LOOK_SECONDS, lambda: to_the_end(asyncio.to_thread(hold)))


def _written(store: Store, staging: Path) -> int:
    """Bytes on the disk that a worker has written for it; what has just been removed has none."""
    found: dict[int, int] = {}  # by inode: a file has two names while it comes from the gate
    for top in (*gate.filled(store.root / gate.FOLDER, staging), staging):
        with contextlib.suppress(OSError):
            for _, _, files, place in os.fwalk(top):
                for name in files:
                    with contextlib.suppress(OSError):
                        seen = os.stat(name, dir_fd=place, follow_symlinks=False)
                        found[seen.st_ino] = seen.st_blocks * 512
    return sum(found.values())


def _settle(store: Store, staging: Path, meta: TraceMeta, on_stored: Callable[[TraceRecord], None]) -> TraceRecord:
    try:
        record = store.adopt(staging, meta)
    finally:
        store.discard(staging)
    on_stored(record)
    try:
        store.enforce()
    except ProfdError as error:  # the trace is stored, whatever becomes of older ones
        log.error("the store could not be brought within its limit", extra={"why": str(error)})
    return record


def _arguments(inputs: Sequence[Input], staging: Path, meta: TraceMeta) -> dict[str, Any]:
    files = [{"format": file.format, "label": file.label, "fd": index} for index, file in enumerate(inputs)]
    return {"files": files, "staging": str(staging), "meta": msgspec.to_builtins(meta)}


def _phases(wall_ns: int, result: dict[str, Any]) -> list[Phase]:
    store_ns = int(result.get("timings_ns", {}).get("store", 0))
    return [Phase("decode", max(0, wall_ns - store_ns)), Phase("store", store_ns)]
