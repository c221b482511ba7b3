"""The worker pool, with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from profd import limits
from profd.disk.space import Space
from profd.errors import BadTrace, Exhausted, JobFailed, NotFound, Unavailable
from profd.fairness.shares import Holder, Refused
from profd.limits import DECODE_CPU_SECONDS_MIN, DECODE_CPU_SECONDS_PER_MIB, JOBS_MAX, JOBS_PER_UID_MAX
from profd.workers import cpu
from profd.workers.child import Child, WorkerSettings
from profd.workers.pool import WorkerPool
from profd.workers.turns import JobKind, Turn

from tests.support.jobs import JOBS
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(1, known=JOBS)
    await pool.open()
    yield pool
    await pool.close()


async def test_result_and_worker_are_kept_across_jobs(pool: WorkerPool) -> None:
    first = await pool.run("echo", {"a": [1, None, "ü"]})
    second = await pool.run("echo", {})
    assert first["args"] == {"a": [1, None, "ü"]}
    assert first["pid"] == second["pid"] == pool.pids[0] != os.getpid()
    assert (pool.statistics().jobs_done, pool.statistics().workers_started) == (2, 1)


async def test_waits_are_told_by_what_they_were_for(pool: WorkerPool) -> None:
    waits: list[JobKind] = []
    pool.on_waited = lambda kind, seconds: waits.append(kind) if seconds >= 0 else None
    await pool.run("echo", {}, turn=Turn(Holder(5, False), JobKind.QUESTION))
    await pool.run("echo", {}, turn=Turn(Holder(5, False), JobKind.CAPTURE))
    assert waits == [JobKind.QUESTION, JobKind.CAPTURE]


async def test_what_a_question_writes_aside_has_a_place_in_the_ledger(tmp_path: Path) -> None:
    """So an export read slowly does not take what others are promised; the next question has a worker."""
    pool = WorkerPool(1, known=JOBS, gates=tmp_path / "gates")
    await pool.open()
    free = 64 << 20
    space = Space(tmp_path, measure=lambda: (free, 10 * free))
    pool.claim = lambda uid: space.claim(uid, "what this question writes aside")
    question = Turn(Holder(5, False), JobKind.LONG)
    with pytest.raises(Exhausted, match="what this question writes aside needs 1 byte more"):
        await pool.run("aside", {"bytes": free}, turn=question)
    assert space.statistics().promised == 0
    assert (await pool.run("echo", {}, turn=question))["args"] == {}
    await pool.close()


async def test_large_arguments_and_results(pool: WorkerPool) -> None:
    text = "y" * (1 << 20)
    assert (await pool.run("echo", {"text": text}))["args"]["text"] == text
    with pytest.raises(JobFailed, match="its result cannot be sent"):  # it was told, and its answer would be as long
        await pool.run("echo", {"text": text * 5})


async def test_result_above_the_limit_fails_the_job_only(pool: WorkerPool) -> None:
    with pytest.raises(JobFailed, match="the limit is"):
        await pool.run("huge", {"bytes": 3 << 20})
    assert (await pool.run("echo", {}))["fds"] == 0


async def test_arguments_that_cannot_be_sent(pool: WorkerPool) -> None:
    with pytest.raises(JobFailed, match="not JSON"):
        await pool.run("echo", {"it": object()})
    with pytest.raises(JobFailed, match="descriptors"):
        await pool.run("echo", {}, fds=[0] * 129)
    assert (await pool.run("echo", {}))["pid"] == pool.pids[0]


async def test_a_trace_that_is_too_dear_for_its_size_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small it is; what a job waits for does not count, and the next one has a worker."""
    monkeypatch.setattr("profd.workers.cpu.DECODE_CPU_LOOK_SECONDS", 0.05)
    pool = WorkerPool(1, known={"store_trace": "tests.support.jobs:spin", "echo": JOBS["echo"]})
    await pool.open()
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 20))
        file.flush()
        file.truncate(1 << 30)  # holes buy no time
        assert cpu.allowed("store_trace", [file.fileno()]) == DECODE_CPU_SECONDS_MIN + DECODE_CPU_SECONDS_PER_MIB
        monkeypatch.setattr("profd.workers.cpu.DECODE_CPU_SECONDS_MIN", 0.3)
        monkeypatch.setattr("profd.workers.cpu.DECODE_CPU_SECONDS_PER_MIB", 0.0)
        with pytest.raises(Exhausted, match="of CPU, the most for a file of its size"):
            await pool.run("store_trace", {}, [file.fileno()])
    assert cpu.allowed("echo", []) is None
    assert (await pool.run("echo", {}))["pid"] in pool.pids
    assert pool.statistics().workers_killed == 1
    await pool.close()


async def test_descriptors_are_the_callers_still(pool: WorkerPool) -> None:
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as sink:
        source.write(b"raw bytes")
        source.seek(0)
        assert await pool.run("copy", {}, fds=[source.fileno(), sink.fileno()]) == {"bytes": 9}
        sink.seek(0)
        assert sink.read() == b"raw bytes"


async def test_worker_keeps_no_descriptor_of_a_job(pool: WorkerPool) -> None:
    before = (await pool.run("count", {"to": 0}))["open"]
    await pool.run("echo", {}, fds=[0, 1, 2])
    assert (await pool.run("count", {"to": 0}))["open"] == before


async def test_progress_arrives_in_order(pool: WorkerPool) -> None:
    seen: list[tuple[str, float]] = []
    await pool.run("count", {"to": 5}, on_progress=lambda what, share: seen.append((what, share)))
    assert seen[0] == ("step 0", 0.0)
    assert [share for _, share in seen] == sorted(share for _, share in seen)


async def test_errors_travel_as_their_type(pool: WorkerPool) -> None:
    with pytest.raises(BadTrace, match="byte 7 is wrong") as caught:
        await pool.run("fail", {"how": "bad trace"})
    assert caught.value.offset == 7
    with pytest.raises(NotFound, match="nothing of that name"):
        await pool.run("fail", {"how": "subclass"})
    with pytest.raises(JobFailed, match="ValueError: a bug"):
        await pool.run("fail", {"how": "otherwise"})
    with pytest.raises(JobFailed, match="not JSON"):
        await pool.run("fail", {"how": "not json"})
    with pytest.raises(JobFailed, match="KeyError"):
        await pool.run("no such job", {})
    assert pool.statistics().workers_started == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [({"signal": signal.SIGKILL}, "SIGKILL"), ({"signal": signal.SIGSEGV}, "SIGSEGV"), ({"exit": 3}, "exit code 3")],
)
async def test_dead_worker_costs_its_job_and_is_replaced(pool: WorkerPool, how: dict[str, int], said: str) -> None:
    (before,) = pool.pids
    with pytest.raises(JobFailed, match=said):
        await pool.run("die", how)
    assert (await pool.run("echo", {}))["pid"] != before
    assert pool.statistics().workers_died == 1


def framed(body: bytes, fds: int = 0) -> str:
    return (struct.pack(">II", len(body), fds) + body).hex()


@pytest.mark.parametrize(
    "sent",
    [
        "ffffffff00000000",  # 4 GiB to come
        framed(b"{}", 200),
        framed(b"{}", 1),
        framed(b"[1]"),
        framed(b"\xff\xfe"),
        framed(b"[" * 100_000),
        framed(b'{"progress": 7}'),
        framed(b'{"progress": ["x", {}]}'),
    ],
    ids=["huge", "many fds", "fds", "no object", "no text", "nested", "progress", "share"],
)
async def test_worker_that_breaks_the_protocol_is_replaced(pool: WorkerPool, sent: str) -> None:
    (before,) = pool.pids
    with pytest.raises(JobFailed, match="broke the protocol"):
        await pool.run("garble", {"hex": sent}, on_progress=lambda what, share: None)
    assert (await pool.run("echo", {}))["pid"] != before


@pytest.mark.parametrize("body", [b"{}", b'{"result": [1]}', b'{"error": 7}', b'{"error": {"type": "SystemExit"}}'])
async def test_answer_that_says_nothing_is_a_failed_job(pool: WorkerPool, body: bytes) -> None:
    with pytest.raises(JobFailed):
        await pool.run("garble", {"hex": framed(body)})


async def test_worker_killed_while_idle_costs_nothing(pool: WorkerPool) -> None:
    (before,) = pool.pids
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    assert (await pool.run("echo", {}))["pid"] != before


async def test_another_worker_waits_in_the_place_of_one_that_was_killed_idle(pool: WorkerPool) -> None:
    before = (await pool.run("echo", {}))["pid"]
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: pool.pids and before not in pool.pids and pool.statistics().idle == 1)
    assert before not in children_of_ours()
    (fresh,) = pool.pids
    assert (await pool.run("echo", {}))["pid"] == fresh


async def test_whatever_ends_waiting_workers_does_not_end_one_after_the_other(pool: WorkerPool) -> None:
    (unused,) = pool.pids
    os.kill(unused, signal.SIGKILL)
    await eventually(lambda: not pool.pids and pool.statistics().idle == 1)
    assert unused not in children_of_ours()
    assert (await pool.run("echo", {}))["pid"] in pool.pids
    assert pool.statistics().workers_started == 2


async def test_worker_killed_before_it_is_ready_costs_no_job(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = pool.pids
    start, killed = Child.start, []

    async def start_and_kill_the_first(settings: WorkerSettings) -> Child:
        others = children_of_ours()  # this one, and what tests before have left
        spawned = asyncio.ensure_future(start(settings))
        if not killed:
            await asyncio.sleep(0)  # it is spawned in the first step
            killed.extend(children_of_ours() - others)
            os.kill(killed[0], signal.SIGKILL)
        return await spawned

    monkeypatch.setattr(Child, "start", start_and_kill_the_first)
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    assert (await pool.run("echo", {}))["pid"] not in (before, *killed)
    assert len(killed) == 1


def children_of_ours() -> set[int]:
    """Processes that this thread has begun."""
    return {int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}


async def test_job_that_outstays_its_time(pool: WorkerPool) -> None:
    with pytest.raises(JobFailed, match=r"longer than 0.01 s"):
        await pool.run("hang", {}, timeout=0.01)
    assert (await pool.run("echo", {}))["fds"] == 0
    assert pool.statistics().workers_killed == 1


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "hangs"])
async def test_a_glance_that_nobody_waits_for_may_end_by_itself(
    pool: WorkerPool, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GLANCE_LEFT_SECONDS", 60.0 if ends else 0.01)
    (worker,) = pool.pids
    out, to_out = os.pipe()
    held, to_held = os.pipe()
    turn = Turn(Holder(1, reserved=False), JobKind.GLANCE)
    task = asyncio.create_task(pool.run("glance", {}, fds=[to_out, held], turn=turn))
    await asyncio.to_thread(os.read, out, 1)
    os.close(to_out)
    task.cancel()
    await asyncio.sleep(0)
    os.close(out)
    if ends:
        os.close(to_held)
    with pytest.raises(asyncio.CancelledError):
        await task
    if not ends:
        os.close(to_held)
    os.close(held)
    assert (await pool.run("echo", {}))["pid"] in (pool.pids if ends else {*pool.pids} - {worker})
    assert (pool.pids == [worker]) is ends


async def test_cancelling_kills_the_worker(pool: WorkerPool) -> None:
    (before,) = pool.pids
    read, write = os.pipe()
    task = asyncio.create_task(pool.run("hang", {}, fds=[write]))
    assert await asyncio.to_thread(os.read, read, 1) == b"x"  # it runs
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.close(read)
    os.close(write)
    assert (await pool.run("echo", {}))["pid"] != before


async def test_who_abandons_questions_ends_one_worker_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is for others, also while the first is replaced."""
    monkeypatch.setattr(limits, "WORKERS_EXTRA_WAIT_SECONDS", 600.0)
    pool = WorkerPool(2, known=JOBS)
    await pool.open()
    abandons, asks = (Turn(Holder(uid, reserved=False), JobKind.QUESTION) for uid in (1, 2))
    started, start = asyncio.Event(), Child.start

    async def start_late(settings: WorkerSettings) -> Child:
        await started.wait()
        return await start(settings)

    monkeypatch.setattr(Child, "start", start_late)
    read, write = os.pipe()
    first = asyncio.create_task(pool.run("hang", {}, fds=[write], turn=abandons))
    assert await asyncio.to_thread(os.read, read, 1) == b"x"  # it runs
    second = asyncio.create_task(pool.run("echo", {"a": 2}, turn=abandons))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await pool.run("echo", {"a": 1}, turn=asks))["args"] == {"a": 1}
    assert not second.done()
    assert pool.statistics().waiting == 1
    started.set()
    assert (await second)["args"] == {"a": 2}
    await pool.close()
    os.close(read)
    os.close(write)


async def test_memory_limit() -> None:
    pool = WorkerPool(1, memory_bytes=1 << 30, known=JOBS)
    await pool.open()
    try:
        before = pool.pids
        with pytest.raises(JobFailed, match="more memory"):
            await pool.run("hoard", {"bytes": 2 << 30})
        assert await pool.run("hoard", {"bytes": 1 << 20}) == {"size": 1 << 20}
        assert pool.pids != before
    finally:
        await pool.close()


async def test_worker_that_cannot_be_replaced_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkerPool(1, known=JOBS)
    await pool.open()
    try:
        with monkeypatch.context() as broken:
            broken.setattr("sys.executable", "/nonexistent/python")
            with pytest.raises(JobFailed, match="SIGKILL"):
                await pool.run("die", {})
            with pytest.raises(JobFailed, match="could not be started"):
                await pool.run("echo", {})
        assert (await pool.run("echo", {}))["fds"] == 0
    finally:
        await pool.close()


async def test_worker_is_replaced_after_its_jobs() -> None:
    pool = WorkerPool(1, jobs_per_worker=2, known=JOBS)
    await pool.open()
    try:
        pids = [(await pool.run("echo", {}))["pid"] for _ in range(4)]
    finally:
        await pool.close()
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_who_has_too_many_jobs_is_refused_and_no_capture_is(pool: WorkerPool) -> None:
    question = Turn(Holder(1000, reserved=False), JobKind.QUESTION)
    running = asyncio.create_task(pool.run("hang", {}, turn=question))
    waiting = [asyncio.create_task(pool.run("echo", {}, turn=question)) for _ in range(JOBS_PER_UID_MAX - 1)]
    captures = [asyncio.create_task(pool.run("echo", {})) for _ in range(2 * JOBS_MAX)]
    while pool.statistics().waiting != len(waiting) + len(captures):
        await asyncio.sleep(0)
    with pytest.raises(Refused, match="try again"):
        await pool.run("echo", {}, turn=question)
    await pool.close()
    with pytest.raises(JobFailed):
        await running
    for job in (*waiting, *captures):
        with pytest.raises(Unavailable):
            await job
    with pytest.raises(Unavailable):
        await pool.run("echo", {})
    assert pool.pids == []


async def test_a_capture_is_stored_before_the_questions_that_came_first(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WORKERS_EXTRA_WAIT_SECONDS", 600.0)  # one worker, however slow the machine is
    ended: list[str] = []

    async def ask(name: str, turn: Turn) -> None:
        await pool.run("echo", {}, turn=turn)
        ended.append(name)

    async def hold(until: int, turn: Turn) -> None:
        with open(os.devnull, "wb") as nowhere:
            await pool.run("copy", {}, [until, nowhere.fileno()], turn=turn)

    until, release = os.pipe()  # an answer may be there before the next one has asked
    holds = asyncio.create_task(hold(until, Turn(Holder(1000, reserved=False), JobKind.QUESTION)))
    turns = [(f"question {n}", Turn(Holder(1000, reserved=False), JobKind.QUESTION)) for n in range(1, 5)]
    turns.append(("other", Turn(Holder(1001, reserved=False), JobKind.LONG)))
    turns.append(("capture", Turn(Holder(1002, reserved=False), JobKind.CAPTURE)))
    asked = asyncio.gather(*(ask(*each) for each in turns))
    await eventually(lambda: pool.statistics().waiting == len(turns))
    os.close(release)
    await asked
    await holds
    os.close(until)
    assert ended == ["capture", "question 1", "other", *(f"question {n}" for n in (2, 3, 4))]


async def test_a_user_who_has_none_has_a_worker_while_another_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WORKERS_EXTRA_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(limits, "WORKERS_EXTRA_IDLE_SECONDS", 0.05)
    pool = WorkerPool(1, known=JOBS)
    await pool.open()
    endless, others = (Turn(Holder(uid, reserved=False), JobKind.LONG) for uid in (1, 2))
    tasks = [asyncio.create_task(pool.run("hang", {}, turn=endless)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await pool.run("echo", {"a": 1}, turn=others))["args"] == {"a": 1}
    assert pool.statistics().running == 1  # neither ended nor joined by its like
    await eventually(lambda: pool.statistics().size == 1 and len(pool.pids) == 1)
    assert not tasks[0].done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await pool.close()


async def test_no_more_than_so_many_workers_are_started_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WORKERS_EXTRA_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(limits, "WORKERS_EXTRA_MAX", 1)
    pool = WorkerPool(1, known=JOBS)
    await pool.open()
    users = [Turn(Holder(uid, reserved=False), JobKind.LONG) for uid in (1, 2, 3)]
    tasks = [asyncio.create_task(pool.run("hang", {}, turn=user)) for user in users]
    await eventually(lambda: pool.statistics().running == 2)
    looks, starves = [], pool._turns.starves
    monkeypatch.setattr(pool._turns, "starves", lambda uid: bool(looks.append(uid)) or starves(uid))
    await eventually(lambda: len(looks) > 10)
    assert (pool.statistics().size, pool.statistics().waiting, pool._growing) == (2, 1, False)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await pool.close()


async def test_worker_has_no_rights(pool: WorkerPool) -> None:
    assert (await pool.run("reach", {"pid": os.getpid()}))["worked"] == []
    (pid,) = pool.pids
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16) * (os.geteuid() == 0)) == (0, 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.nice(0) + 5)
