"""A real streamer process against a real server; arenas as a target would leave them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from profd.attached.ingest import streamer_process
from profd.attached.ingest.arena import counters_untrusted
from profd.attached.ingest.intake import Intake
from profd.attached.ingest.streamers import Drain
from profd.kernel.environment import bare_environment
from profd.limits import LEAD_BYTES, STREAMER_TASKS_EACH_MAX
from profd.model.capture import Loss

from tests.support import arena_writer as writer
from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, arena_chunks, ingest_rig, names_of
from tests.support.recording_job import recording_job
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig() -> AsyncIterator[IngestRig]:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            yield rig


async def begin(
    rig: IngestRig, fd: int, incarnation: int = INCARNATION, folder: Path | None = None
) -> tuple[Intake, Drain]:
    intake = await rig.ingest.expect(incarnation, EPOCH, os.getuid(), folder or rig.folder)
    drain = rig.streamers.drain(os.getuid(), incarnation, EPOCH, fd)
    os.close(fd)
    return intake, drain


async def test_everything_sealed_and_open_arrives_once_and_is_accounted_for(rig: IngestRig) -> None:
    chunks = list(arena_chunks(streams=3, each=20))
    chunks[-1].state, chunks[-2].state = writer.OPEN, writer.ORPHAN
    fd = writer.arena_fd(chunks, recording=0, lost=(11, 2), recorded=58 * 8)
    intake, drain = await begin(rig, fd)
    async with asyncio.timeout(LONG):
        await drain.finish(target_died=False)
        await intake.finished.wait()
    assert not drain.problem
    assert drain.restarts == 0
    drain.close()
    intake.close()
    assert sorted(names_of(intake.path)) == [(stream, sequence) for stream in range(3) for sequence in range(20)]
    assert intake.events == intake.recorded == 60 * 8
    assert intake.losses == [Loss("target", "arena_full", 11), Loss("target", "strings_full", 2)]


async def drained(intake: Intake, drain: Drain, *, target_died: bool = False) -> None:
    """Finish, and close both."""
    async with asyncio.timeout(LONG):
        await drain.finish(target_died=target_died)
        assert not drain.problem
        await intake.finished.wait()
    drain.close()
    intake.close()


def lost(intake: Intake) -> dict[str, int]:
    return {f"{loss.stage}.{loss.reason}": loss.count for loss in intake.losses}


def full(totals: dict[str, int]) -> dict[str, int]:
    """What is lost where the job was ahead of its streamer, as on a busy host: as many as the job counted."""
    return {"target.arena_full": totals["arena_full"]} if totals["arena_full"] else {}


def holds_an_arena(pid: int) -> bool:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            if "memfd:arena" in str(file.readlink()):
                return True
    return False


def nothing_twice(intake: Intake) -> None:
    names = names_of(intake.path)
    assert len(names) == len(set(names))


async def test_process_that_records_is_drained_to_its_last_event(rig: IngestRig) -> None:
    with recording_job() as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 20)
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert (intake.events, intake.recorded) == (totals["recorded"], totals["recorded"])
    assert lost(intake) == full(totals)


async def test_killed_process_leaves_everything_it_published(rig: IngestRig) -> None:
    with recording_job() as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 20)
        job.process.kill()
        await asyncio.to_thread(job.process.wait)
        await drained(intake, drain, target_died=True)
    nothing_twice(intake)
    assert intake.events == intake.recorded
    assert set(lost(intake)) <= {"target.arena_full"}  # as for `full`; it can tell nobody how many


async def test_killed_streamers_cost_nothing(rig: IngestRig) -> None:
    with recording_job() as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        for _ in range(3):
            before, restarts = intake.chunks, drain.restarts
            await eventually(lambda before=before: intake.chunks > before + 5)
            os.kill(rig.streamers.pids[0], signal.SIGKILL)
            await eventually(lambda restarts=restarts: drain.restarts > restarts)
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert intake.events == intake.recorded == totals["recorded"]
    assert set(lost(intake)) <= {"target.arena_full"}


def lossy(fd: int) -> bool:
    """Whether the job has dropped events: its arena is full, and it goes on."""
    counters = counters_untrusted(fd)
    return counters is not None and bool(counters.lost)


async def test_stopped_streamer_is_waited_for(rig: IngestRig) -> None:
    with recording_job(arena_bytes=2 << 20) as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 5)
        pid = rig.streamers.pids[0]
        os.kill(pid, signal.SIGSTOP)
        before = intake.chunks
        await eventually(lambda: lossy(drain.fd))
        os.kill(pid, signal.SIGCONT)
        await eventually(lambda: intake.chunks > before + 5)
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert intake.events == totals["recorded"]
    assert lost(intake) == {"target.arena_full": totals["arena_full"]}


async def test_connection_that_breaks_is_made_again(rig: IngestRig) -> None:
    with recording_job() as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        for _ in range(2):
            before = intake.chunks
            await eventually(lambda before=before: intake.chunks > before + 5)
            await rig.restart_server()
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert drain.restarts == 0
    assert intake.events == totals["recorded"]


async def test_slow_writer_makes_the_target_drop_and_count(rig: IngestRig) -> None:
    slow = threading.Event()
    with recording_job(arena_bytes=2 << 20) as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 5)
        rig.ingest.writer.start(intake.uid, slow.wait)  # a disk that takes nothing
        await eventually(lambda: lossy(drain.fd))
        slow.set()
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert intake.events == totals["recorded"]
    assert lost(intake) == {"target.arena_full": totals["arena_full"]}


async def test_a_target_that_gets_ahead_is_allocated_more(rig: IngestRig) -> None:
    slow = threading.Event()
    with recording_job(arena_bytes=24 << 20) as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        assert drain.lead.bytes == LEAD_BYTES
        await eventually(lambda: intake.chunks > 5)
        rig.ingest.writer.start(intake.uid, slow.wait)
        await eventually(lambda: drain.lead.bytes > LEAD_BYTES)
        slow.set()
        await asyncio.to_thread(job.stop)
        arena = os.dup(drain.fd)
        await drained(intake, drain)
        # Given back, though the job holds it.
        await eventually(lambda: rig.streamers.leads.taken == 0)
        assert os.fstat(arena).st_blocks * 512 <= 64 * 1024
        os.close(arena)


async def test_a_target_that_was_only_silent_goes_on_in_memory_that_is_there(rig: IngestRig) -> None:
    with recording_job() as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 5)
        os.kill(job.process.pid, signal.SIGSTOP)
        arena = os.dup(drain.fd)
        before = os.fstat(arena).st_blocks
        drain.may_be_written = True  # as who asks for it says of a target that is not known to be dead
        await drained(intake, drain, target_died=True)
        await rig.streamers.leads.done()  # had it been among what is freed, it would be by now
        assert os.fstat(arena).st_blocks >= before
        os.close(arena)
        os.kill(job.process.pid, signal.SIGCONT)
        await asyncio.to_thread(job.stop)
    nothing_twice(intake)


async def test_full_disk_is_told_and_the_job_goes_on(rig: IngestRig) -> None:
    with recording_job() as job:
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 5)
        intake._file._bytes_max = intake.bytes + 10_000
        await eventually(lambda: intake.failure)
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert "limit" in intake.failure
    assert lost(intake) == {"ingest.journal_full": totals["recorded"] - intake.events, **full(totals)}


async def test_daemon_that_comes_back_goes_on_with_the_file(rig: IngestRig) -> None:
    with recording_job() as job:
        fd = os.dup(job.fd)
        intake, drain = await begin(rig, job.fd, job.incarnation)
        await eventually(lambda: intake.chunks > 20)
        # As a daemon that was killed: its streamer loses it in the middle, an unfinished chunk is in the file.
        await rig.streamers.close()
        drain.close()
        intake.close()
        with intake.path.open("ab") as file:
            file.write(b"PFC1 and no more")
        intake, drain = await begin(rig, fd, job.incarnation)
        totals = await asyncio.to_thread(job.stop)
        await drained(intake, drain)
    nothing_twice(intake)
    assert intake.events == totals["recorded"]
    assert lost(intake) == full(totals)


async def test_arena_that_is_none_is_refused_with_its_reason(rig: IngestRig) -> None:
    fd = os.memfd_create("nothing", os.MFD_CLOEXEC)
    intake, drain = await begin(rig, fd)
    async with asyncio.timeout(LONG):
        await drain.ended.wait()
        await drain.finish(target_died=False)
    assert "the arena cannot be read" in drain.problem
    drain.close()
    intake.close()


async def test_two_arenas_share_a_streamer(rig: IngestRig) -> None:
    with recording_job() as one, recording_job() as other:
        (rig.folder / "other").mkdir()
        first = await begin(rig, one.fd, one.incarnation)
        second = await begin(rig, other.fd, other.incarnation, folder=rig.folder / "other")
        await eventually(lambda: first[0].chunks > 5 and second[0].chunks > 5)
        assert len(rig.streamers.pids) == 1
        for job, (intake, drain) in ((one, first), (other, second)):
            totals = await asyncio.to_thread(job.stop)
            await drained(intake, drain)
            assert intake.events == totals["recorded"]


def opened_by(pid: int) -> list[str]:
    """What a process has open; it may be closing some of it."""
    names = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(str(file.readlink()))
    return names


async def test_predecessor_that_still_reads_is_waited_for(rig: IngestRig) -> None:
    fd = writer.arena_fd(list(arena_chunks(1, 5)), recording=0, recorded=40)
    script = "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(fd)], pass_fds=[fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    await asyncio.to_thread(other.stdout.readline)
    intake, drain = await begin(rig, fd)
    await eventually(lambda: rig.streamers.pids)
    await eventually(lambda: any("memfd:arena" in name for name in opened_by(rig.streamers.pids[0])))
    assert intake.chunks == 0
    other.communicate()
    await drained(intake, drain)
    assert drain.restarts == 0
    assert intake.events == 40


async def test_hundreds_of_arenas_while_the_streamer_does_not_listen(rig: IngestRig) -> None:
    first = await begin(rig, writer.arena_fd([], recording=0))
    await eventually(lambda: rig.streamers.pids)
    (pid,) = rig.streamers.pids
    os.kill(pid, signal.SIGSTOP)
    others = []
    for number in range(1, 300):
        fd = writer.arena_fd(list(arena_chunks(1, 1)), incarnation=number, recording=0, recorded=8)
        (rig.folder / str(number)).mkdir()
        others.append(await begin(rig, fd, number, rig.folder / str(number)))
    os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(LONG):
        await asyncio.gather(*(drained(intake, drain) for intake, drain in [first, *others]))
    assert all(intake.events == 8 and not intake.losses for intake, _ in others)


async def test_its_tasks_are_bounded_on_a_host_of_many_cores(
    rig: IngestRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All streamers share a number of them: a user's is to have its part."""
    made, source = tmp_path / "many_cores.so", Path(__file__).parents[2] / "support" / "many_cores.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    environ = {**bare_environment(), "LD_PRELOAD": str(made)}
    monkeypatch.setattr(streamer_process, "bare_environment", lambda: environ)
    fd = writer.arena_fd(list(arena_chunks(streams=4, each=50)), recording=0, recorded=4 * 50 * 8)
    intake, drain = await begin(rig, fd)
    await eventually(lambda: intake.chunks == 200)
    tasks = os.listdir(f"/proc/{rig.streamers.pids[0]}/task")
    drain.close()
    intake.close()
    assert 16 < len(tasks) <= STREAMER_TASKS_EACH_MAX
