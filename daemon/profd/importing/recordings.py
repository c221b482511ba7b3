"""What captures leave behind, stored: the capture manager's view of the store."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from profd.capture.failures import reason_of
from profd.capture.outcome import StoredTrace
from profd.capture.records import CaptureRecord, TargetRecord
from profd.disk.space import Urgency
from profd.errors import Exhausted
from profd.importing.ingest import Input, RunJob, ingest, open_raw
from profd.limits import INGEST_TRACE_FACTOR
from profd.model.capture import STAGES_BEFORE, RawFile, Reason
from profd.segments.meta import TraceMeta
from profd.store.catalog import TraceRecord
from profd.store.store import Store
from profd.targets.process import ProcessId

_SAMPLES: Final = "pyspy"  # a format of raw files
_LEFT_OUT: Final = "samples were left out: there was no space to sort them in"
_FREED_SECONDS: Final = 10.0  # for a worker that was ended, and with it the nameless file in which it sorted
_FREED_LOOK_SECONDS: Final = 0.05


class Recordings:
    """Satisfies `profd.capture.ports.Storing`."""

    def __init__(self, store: Store, run_job_of: Callable[[int], RunJob]) -> None:
        """`run_job_of`: by the uid whose captures are stored."""
        self._store = store
        self._run_job_of = run_job_of

    async def store(self, capture: CaptureRecord, target: TargetRecord, files: list[RawFile]) -> StoredTrace:
        """Store the raw files of one target as one trace; the files stay the journal's.

        Samples that nobody asked for are left out where there is no space to sort them in. Raises ProfdError (BadTrace,
        Exhausted, JobFailed …); nothing is visible then.
        """
        try:
            return await self._store_all(capture, target, files)
        except Exhausted as error:
            needed = _without_spare(capture, files)
            if not needed or reason_of(error) is not Reason.DISK_FULL:
                raise
        await self._freed(needed)
        return await self._store_all(capture, target, needed, _LEFT_OUT)

    async def _freed(self, files: list[RawFile]) -> None:
        """Wait for the room that recording has left for these: what fills it ends, on a busy host after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FREED_SECONDS):
                while not await asyncio.to_thread(self._has_room, files):
                    await asyncio.sleep(_FREED_LOOK_SECONDS)

    def _has_room(self, files: list[RawFile]) -> bool:
        raw = sum(os.stat(file.path, follow_symlinks=False).st_size for file in files)
        return self._store.space.left(Urgency.STORING) >= INGEST_TRACE_FACTOR * raw

    async def _store_all(
        self, capture: CaptureRecord, target: TargetRecord, files: list[RawFile], *warnings: str
    ) -> StoredTrace:
        with contextlib.ExitStack() as opened:
            inputs = []
            for file in files:
                fd = open_raw(Path(file.path))
                opened.callback(os.close, fd)
                inputs.append(Input(fd, file.format, Path(file.path).name))
            meta = _meta(capture, target)
            meta.warnings += warnings
            record, result = await ingest(self._store, self._run_job_of(capture.owner_uid), inputs, meta)
        return StoredTrace(
            **_counts(record),
            warnings=result["warnings"][len(target.warnings) :],
            gpu_launches=result.get("launches"),
            waterfall=meta.waterfall[len(target.waterfall) :],
        )

    def find(self, capture: str, process: ProcessId) -> StoredTrace | None:
        """The trace that this target of a capture has left in the store, if it has."""
        for record in self._store.of_capture(capture):
            if (record.pid, record.start_ticks) == (process.pid, process.start_ticks):
                return StoredTrace(**_counts(record))
        return None


def _without_spare(capture: CaptureRecord, files: list[RawFile]) -> list[RawFile]:
    """What is left without samples that stand beside a recording unasked; empty: there are none, or nothing else."""
    needed = [file for file in files if file.format != _SAMPLES]
    return needed if capture.options.sample_hz is None and len(needed) < len(files) else []


def _meta(capture: CaptureRecord, target: TargetRecord) -> TraceMeta:
    return TraceMeta(
        capture=capture.id,
        owner_uid=capture.owner_uid,
        owner=capture.owner,
        source=target.source,
        title=target.command,
        host=target.host,
        pid=target.pid,
        start_ticks=target.start_ticks,
        rank=target.rank,
        job=target.job,
        window_start_ns=target.start_ns,
        window_end_ns=target.end_ns,
        host_clock=capture.fleet.clock if capture.fleet is not None else None,
        options=msgspec.to_builtins(capture.options),
        not_honoured=list(target.not_honoured),
        lost=list(target.lost),
        warnings=list(target.warnings),
        cost=target.cost,
        waterfall=list(target.waterfall),
        versions=dict(target.versions),
        gpu=dict(target.gpu),
        run_times=target.run_times,
        resident=target.resident,
        traits=target.known_traits,
    )


def _counts(record: TraceRecord) -> dict[str, Any]:
    return {
        "trace": record.id,
        "events": record.events,
        "gpu_events": record.gpu_events,
        "start_ns": record.start_ns,
        "end_ns": record.end_ns,
        # The recording's own losses are in the trace as well; the manager has them already.
        "lost": [loss for loss in record.lost if loss.stage not in STAGES_BEFORE],
        "truncated": bool(record.truncated),
    }
