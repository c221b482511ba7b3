"""Whatever happens in whatever order: every capture ends, nothing stays held, nothing stays on disk for nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from profd.capture.machine import Graces
from profd.capture.manager import CaptureManager
from profd.errors import JobFailed, ProfdError
from profd.model.capture import Reason, Recording, State

from tests.support.captures import ALICE, LONG, ROOT, FakeTable, Rig, ended, process, request

PIDS = (100, 101, 102)
STEPS = ("start", "start two", "finish", "empty", "fault", "stop", "end", "store fails", "store works", "retry", "turn")
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 1 << 16))


async def step(rig: Rig, manager: CaptureManager, what: str, seed: int) -> None:
    chosen = random.Random(seed)
    pid = chosen.choice(PIDS)
    recording = {"finish": None, "empty": Recording(), "fault": RuntimeError("a fault")}
    if what.startswith("start"):
        pids = PIDS[:2] if what == "start two" else (pid,)
        await manager.start(ALICE, request(*pids, request_id=str(seed % 5)))
    elif what in recording and pid in rig.source.sessions and not rig.source._results[pid].done():
        rig.source.finish(pid, recording[what])
    elif what in ("stop", "retry"):
        capture = chosen.choice(manager.list(ROOT, 100)).id
        if what == "stop":
            manager.stop(ROOT, capture)
        else:
            await manager.retry(ROOT, capture)
    elif what == "end" and pid in rig.table.processes:
        rig.table.end(pid)
    elif what.startswith("store"):
        rig.storing.fail = JobFailed("killed") if what == "store fails" else None
    for _ in range(seed % 7):
        await asyncio.sleep(0)


async def play(directory: Path, steps: list[tuple[str, int]]) -> None:
    rig = Rig(directory, FakeTable([process(pid) for pid in PIDS]))
    rig.graces = Graces(stopping_ns=1_000_000, ended_ns=1_000_000, hearing_ns=0)
    async with rig.running() as manager:
        for what, seed in steps:
            with contextlib.suppress(ProfdError, IndexError):
                await step(rig, manager, what, seed)
        captures = [record.id for record in manager.list(ROOT, 100)]
        for capture in captures:
            manager.stop(ROOT, capture)
            record = await ended(manager, capture)
            assert record.finished_ns is not None
        async with asyncio.timeout(LONG):
            while manager._held:  # released as soon as cancelled sources are over
                await asyncio.sleep(0)
        assert manager._runs == {}
    assert sorted(rig.records.kept) == sorted(captures)
    kept = {target.process for record in manager.list(ROOT, 100) for target in record.targets if target.files}
    failed = {Reason.WORKER_DIED, Reason.DAEMON_RESTARTED}
    for record in manager.list(ROOT, 100):
        for target in record.targets:
            assert target.state.terminal
            assert bool(target.trace) == (target.state in (State.STORED, State.PARTIAL))
            assert not target.files or target.reason in failed
    left = {path.parent.name for path in (directory / "journal").rglob("*") if path.is_file()}
    assert left == {f"{process.pid}-{process.start_ticks}" for process in kept}


@settings(max_examples=60)
@given(st.lists(STEP, max_size=25))
def test_any_order_of_events(steps: list[tuple[str, int]]) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        asyncio.run(play(directory, steps))
    finally:
        shutil.rmtree(directory)
