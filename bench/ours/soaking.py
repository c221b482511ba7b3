"""Ingest alone for as long as asked: recording processes, a real streamer, server and journal; nothing is stored.

This process is the daemon's side of it, so that its memory and CPU are those of ingest.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import uvloop

from tests.support.ingest import EPOCH, IngestRig, ingest_rig
from tests.support.recording_job import RecordingJob, recording_job

JOBS = 4
BURST = 3000  # each of the two threads of a job records so many, then sleeps
START_SECONDS = 3.0  # until the streamer drains


def soak(seconds: float, pause_seconds: float) -> dict[str, Any]:
    """Events recorded and stored, losses, cores used, and memory over time."""
    result: dict[str, Any] = uvloop.run(_soak(seconds, pause_seconds))
    return result


async def _soak(seconds: float, pause_seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        async with ingest_rig(folder) as rig:
            jobs = [
                stack.enter_context(recording_job(64 << 20, per_burst=BURST, pause_seconds=pause_seconds))
                for _ in range(JOBS)
            ]
            drains = [await _begin(rig, folder / str(number), job) for number, job in enumerate(jobs)]
            watched = await _watch(rig, drains, seconds)
            totals = [await asyncio.to_thread(job.stop) for job in jobs]
            for intake, drain in drains:
                await drain.finish(target_died=False)
                await intake.finished.wait()
                drain.close()
                intake.close()
    return {
        **watched,
        "recorded": sum(total["recorded"] for total in totals),
        "stored": sum(intake.events for intake, _ in drains),
        "lost": sum(loss.count for intake, _ in drains for loss in intake.losses),
    }


async def _begin(rig: IngestRig, folder: Path, job: RecordingJob) -> tuple[Any, Any]:
    folder.mkdir()
    intake = await rig.ingest.expect(job.incarnation, EPOCH, os.getuid(), folder)
    drain = rig.streamers.drain(os.getuid(), job.incarnation, EPOCH, job.fd)
    os.close(job.fd)
    return intake, drain


async def _watch(rig: IngestRig, drains: list[tuple[Any, Any]], seconds: float) -> dict[str, Any]:
    await asyncio.sleep(START_SECONDS)
    us, streamer = psutil.Process(), psutil.Process(rig.streamers.pids[0])
    begin, events = time.monotonic(), sum(intake.events for intake, _ in drains)
    cpu = [sum(one.cpu_times()[:2]) for one in (us, streamer)]
    memory = []
    while time.monotonic() - begin < seconds:
        await asyncio.sleep(1)
        memory.append(us.memory_info().rss)
    took = time.monotonic() - begin
    used = [(sum(one.cpu_times()[:2]) - before) / took for one, before in zip((us, streamer), cpu, strict=True)]
    return {
        "rate": (sum(intake.events for intake, _ in drains) - events) / took,
        "daemon_cores": used[0],
        "streamer_cores": used[1],
        "memory": memory,
    }
