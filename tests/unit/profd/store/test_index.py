"""Rollups beside the traces of a store: counted, bounded, gone with their trace, and nobody's but who may read it."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from profd.errors import Denied
from profd.limits import ROLLUP_BYTES_MAX
from profd.offline import run_here
from profd.questions.library import Library
from profd.questions.packed import PACKED
from profd.questions.table import QUESTIONS
from profd.store.store import Store, StoreLimits
from profd.trust.caller import Caller

from tests.unit.profd.store.stored import ANN, BOB, add

CAPTURE = "c0123456789ab"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    yield store
    store.close()


async def top(store: Store, caller: Caller, trace: str, run_job: Any = run_here, capture: str | None = None) -> Any:
    library = Library(store, run_job)
    return await library.answer(await library.asked(caller, "top", trace, {}, capture))


def kept(store: Store) -> set[str]:
    """`<trace>/<name>` of all that is kept; nothing else lies there."""
    return {str(path.relative_to(store.root / "index")) for path in store.root.glob("index/*/*")}


def spoil(store: Store, trace: str) -> None:
    """Its events can be read no more."""
    for file in store.directory(trace).glob("segment-*"):
        file.write_bytes(b"")


async def test_they_answer_are_counted_and_go_with_their_trace(store: Store) -> None:
    trace = add(store)
    before = store.statistics().bytes
    told = await top(store, ANN, trace.id)
    assert kept(store) == {f"{trace.id}/top"}
    file = store.root / "index" / trace.id / "top"
    assert store.statistics().bytes == before + file.stat().st_size
    assert not any((store.root / "index").glob(".*"))
    spoil(store, trace.id)
    assert await top(store, ANN, trace.id) == told
    store.delete(trace.id)
    assert not file.parent.exists()
    assert store.statistics().bytes == 0


async def test_a_store_that_is_opened_again_knows_them_and_forgets_others(store: Store) -> None:
    trace = add(store)
    await top(store, ANN, trace.id)
    index = store.root / "index"
    (index / "1ngg8jm2p27wn").mkdir()
    (index / ".staging-1").mkdir()
    (index / "stray").touch()
    total = store.statistics().bytes
    store.close()
    again = Store(store.root, StoreLimits(free_share_min=0.0))
    assert [path.name for path in index.iterdir()] == [trace.id]
    assert again.statistics().bytes == total
    again.close()
    store._lock = again._lock  # closed twice


async def test_they_go_before_any_trace_does(store: Store) -> None:
    mine, more = (add(store, created_ns=age) for age in (1, 2))
    other = add(store, BOB, created_ns=3)
    for trace in (mine, more):
        await top(store, ANN, trace.id)
    await top(store, BOB, other.id)
    sizes = {trace: (store.root / "index" / trace / "top").stat().st_size for trace in (mine.id, more.id, other.id)}
    traces = sum(record.bytes for record in (mine, more, other))
    store.limits = StoreLimits(bytes=traces + sizes[more.id] + sizes[other.id], free_share_min=0.0)
    assert store.enforce() == []  # the oldest of who has most
    assert kept(store) == {f"{more.id}/top", f"{other.id}/top"}
    # GIVEN no room at all THEN the traces stay, and what is worked out is not kept
    store.limits = StoreLimits(bytes=traces, free_share_min=0.0)
    assert store.enforce() == []
    assert kept(store) == set()
    await top(store, ANN, mine.id)
    assert kept(store) == set()
    assert store.statistics().bytes == traces


async def test_nothing_is_kept_of_a_job_that_read_traces_of_several_users(store: Store) -> None:
    """A trace of one could have taken the worker over, and speak for the others'."""
    add(store, ANN, capture=CAPTURE, rank=0)
    shared = add(store, BOB, capture=CAPTURE, rank=1)
    store.share(shared.id, ["1001"])
    assert len((await top(store, ANN, "", capture=CAPTURE))["traces"]) == 2
    assert kept(store) == set()
    # but of one that read those of one other
    await top(store, ANN, shared.id)
    assert kept(store) == {f"{shared.id}/top"}


async def test_who_may_not_read_a_trace_is_not_answered_from_what_was_kept(store: Store) -> None:
    trace = add(store)
    await top(store, ANN, trace.id)
    with pytest.raises(Denied):
        await top(store, BOB, trace.id)


async def test_what_a_worker_leaves_that_is_no_rollup_is_not_kept(store: Store) -> None:
    trace = add(store)

    async def hostile(job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        staging = Path(args["staging"])
        for name in ("0.steps", "1.top", "0.meta.json", "top", "-1.top", "0.", "99999999.top", "0.top\n"):
            (staging / name).write_text("x")
        with open(staging / "0.top", "wb") as file:
            file.truncate(ROLLUP_BYTES_MAX + 8192)
        return {"value": []}

    assert await top(store, ANN, trace.id, hostile) == []
    assert kept(store) == set()


@pytest.mark.parametrize("what", ["a link", "a second name", "a pipe", "a directory"])
async def test_what_is_no_file_is_not_kept_and_the_answer_is_given(store: Store, what: str, tmp_path: Path) -> None:
    trace = add(store)
    (tmp_path / "secret").write_text("x")

    async def hostile(job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        there = Path(args["staging"]) / "0.top"
        match what:
            case "a link":
                there.symlink_to(tmp_path / "secret")
            case "a second name":
                os.link(tmp_path / "secret", there)
            case "a pipe":
                os.mkfifo(there)
            case "a directory":
                there.mkdir()
        return {"value": []}

    assert await top(store, ANN, trace.id, hostile) == []
    assert kept(store) == set()
    assert not any((store.root / "index").iterdir())


async def test_a_trace_that_goes_meanwhile_leaves_none(store: Store) -> None:
    trace = add(store)

    async def slow(job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        found = await run_here(job, args, fds)
        store.delete(trace.id)
        return found

    assert await top(store, ANN, trace.id, slow)
    assert not any((store.root / "index").iterdir())


async def test_a_store_that_only_reads_keeps_nothing(store: Store) -> None:
    trace = add(store)
    store.unlock()
    assert await top(store, ANN, trace.id)
    assert not any((store.root / "index").iterdir())


async def test_a_disk_that_is_nearly_full_keeps_nothing(store: Store) -> None:
    trace = add(store)
    store.limits = StoreLimits(free_share_min=1.0)
    assert await top(store, ANN, trace.id)
    assert not any((store.root / "index").iterdir())


async def test_a_stale_one_is_replaced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = add(store)
    told = await top(store, ANN, trace.id)
    file = store.root / "index" / trace.id / "top"
    before = file.read_bytes()
    monkeypatch.setattr("profd.segments.rollups.__version__", "9.9.9")
    assert await top(store, ANN, trace.id) == told
    header = json.loads(file.read_bytes().partition(b"\n")[0].partition(b" ")[2])
    assert (header["rules"], header["trace"], header["events"]) == (
        f"9.9.9 top {QUESTIONS['top'].version}",
        trace.id,
        50,
    )
    assert file.read_bytes() != before


OF_CAPTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "top": ("top", {}),
    "top by module": ("top", {"group_by": "module", "by": "rank"}),
    "steps": ("steps", {}),
    "gpu": ("gpu", {}),
    "diff": ("diff", {"other": "c0123456789ff"}),
}


class Jobs:
    """Answers here, and knows what it was asked."""

    def __init__(self) -> None:
        self.arguments: list[set[str]] = []

    async def __call__(self, job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        self.arguments.append({*args})
        return await run_here(job, args, fds, on_progress)

    async def ask(self, store: Store, what: str) -> Any:
        """The answer about all traces, and whether a job had their directories."""
        self.arguments.clear()
        name, values = OF_CAPTURES[what]
        library = Library(store, self)
        with tempfile.TemporaryFile() as out:
            await library.answer(await library.asked(ANN, name, "", values, CAPTURE), out.fileno())
            out.seek(0)
            return out.read(), ["trace_dir" in one for one in self.arguments]


@pytest.mark.parametrize("what", OF_CAPTURES)
async def test_a_capture_is_answered_by_what_was_kept_of_its_traces_without_their_directories(
    store: Store, what: str
) -> None:
    """Making a way to each of a thousand directories took longer than the answer."""
    for capture in (CAPTURE, "c0123456789ff"):
        for rank in range(2):
            add(store, ANN, capture=capture, rank=rank)
    jobs = Jobs()
    told, with_directories = await jobs.ask(store, what)
    assert with_directories == [True]
    assert await jobs.ask(store, what) == (told, [False])
    # GIVEN one that nothing was kept of THEN the events answer
    for file in next(store.root.glob("index/*")).iterdir():
        file.unlink()
    assert await jobs.ask(store, what) == (told, [True])
    # GIVEN one that is of other rules, or damaged THEN they do, too: the job says so
    next(store.root.glob("index/*/*")).write_bytes(b"profd-rollup {}\n")
    assert await jobs.ask(store, what) == (told, [False, True])
    assert await jobs.ask(store, what) == (told, [False])


async def test_of_more_than_fits_a_job_gets_the_directories(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(2):
        add(store, ANN, capture=CAPTURE, rank=rank)
    jobs = Jobs()
    told, _ = await jobs.ask(store, "top")
    size = sum(
        path.stat().st_size for pattern in ("index/*/top", "traces/*/meta.json") for path in store.root.glob(pattern)
    )
    monkeypatch.setattr("profd.questions.packed.PACKED_BYTES_MAX", size)
    assert await jobs.ask(store, "top") == (told, [False])
    monkeypatch.setattr("profd.questions.packed.PACKED_BYTES_MAX", size - 1)
    assert await jobs.ask(store, "top") == (told, [True])


async def test_a_third_question_of_a_user_at_once_gets_the_directories(store: Store) -> None:
    """What is packed is in memory until there is a worker."""
    for owner in (ANN, BOB):
        add(store, owner, capture=CAPTURE)
    waiting: list[set[str]] = []
    gate = asyncio.Event()

    async def run(job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        waiting.append({*args})
        if PACKED in args:
            await gate.wait()
        return await run_here(job, args, fds, on_progress)

    library = Library(store, run)

    async def ask(caller: Caller) -> None:
        with tempfile.TemporaryFile() as out:
            await library.answer(await library.asked(caller, "top", "", {}, CAPTURE), out.fileno())

    await ask(ANN)  # nothing was kept before
    await ask(BOB)
    waiting.clear()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for caller in (ANN, ANN, ANN, BOB):
            group.create_task(ask(caller))
        while len(waiting) < 4:
            await asyncio.sleep(0)
        assert sum(PACKED in one for one in waiting) == 3
        gate.set()


async def test_a_link_among_what_was_kept_is_not_followed(store: Store, tmp_path: Path) -> None:
    add(store, ANN, capture=CAPTURE)
    jobs = Jobs()
    told, _ = await jobs.ask(store, "top")
    kept_file = next(store.root.glob("index/*/top"))
    kept_file.rename(tmp_path / "elsewhere")
    kept_file.symlink_to(tmp_path / "elsewhere")
    assert await jobs.ask(store, "top") == (told, [True])
