"""Who may do what with which trace, and how ids are understood."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from profd.errors import BadInput, Denied, Exhausted, JobFailed, NotFound
from profd.kernel.identity import SAME
from profd.questions import library as library_module
from profd.questions.library import Library
from profd.questions.reading import with_record
from profd.questions.table import QUESTIONS
from profd.store.store import Store, StoreLimits
from profd.workers import gate

from tests.support.cancelled import assert_writes_nowhere
from tests.support.small_disk import free_bytes, small_disk
from tests.unit.profd.store.stored import ANN, BOB, ROOT, add, run_job, whole_traces


@pytest.fixture
def library(tmp_path):
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    yield Library(store, run_job, host="node7")
    store.close()


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("{}")
    with path.open("rb") as file:
        yield file.fileno()


def staged(store: Store) -> list[Path]:
    return list(store.traces.glob(".*"))


async def test_import_is_the_callers(library, raw):
    record = await library.import_file(ANN, raw, "../../etc/\x1b[31mt.json")
    assert (record.owner, record.source, record.host, record.events) == ("ann", "import", "node7", 50)
    assert record.title == "\N{REPLACEMENT CHARACTER}[31mt.json"
    meta = await library.meta(ANN, record.id)
    assert [phase.name for phase in meta.waterfall] == ["decode", "store"]
    assert not staged(library.store)


@pytest.fixture
def read_only(tmp_path):
    """What makes a folder read-only, as a disk with errors becomes, until the end of the test."""
    folders: list[Path] = []

    def make(folder: Path) -> None:
        folders.append(folder)
        for options in (["--bind"], ["-o", "remount,bind,ro"]):
            subprocess.run(["mount", *options, folder, folder], check=True)

    yield make
    for folder in folders:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_an_import_that_the_disk_does_not_take_has_a_sentence(library, read_only):
    read_only(library.store.root)
    with pytest.raises(Exhausted, match=r"Writing to .*/state failed: Read-only file system\. Look why"):
        library.spool()


async def test_files_that_are_imported_as_one_capture(library, raw):
    """Nobody adds to a capture of somebody else's, or to a recorded one: its readers would take it for a part."""
    first = await library.import_file(ANN, raw, "0.json", capture="new")
    second = await library.import_file(ANN, raw, "1.json", capture=first.capture)
    assert first.capture.startswith("c")
    assert second.capture == first.capture
    recorded = add(library.store, ANN, capture="c0123456789ab")
    for caller, capture in ((BOB, first.capture), (ANN, recorded.capture), (ANN, first.capture[:5]), (ANN, "c")):
        with pytest.raises(BadInput, match="no capture of files that you imported together"):
            await library.import_file(caller, raw, "2.json", capture=capture)


async def test_failed_job_leaves_nothing(library, raw):
    async def dies(*_: object, **__: object) -> dict[str, object]:
        raise JobFailed("the worker was killed")

    with pytest.raises(JobFailed):
        await Library(library.store, dies).import_file(ANN, raw, "t.json")
    assert not staged(library.store)
    assert await library.list(ROOT) == []


async def test_a_job_that_fills_the_disk_is_ended_and_another_goes_on(tmp_path, raw, monkeypatch):
    """What a worker writes is looked at while it writes; the disk of a few MiB is real."""
    monkeypatch.setattr("profd.importing.ingest.DISK_LOOK_SECONDS", 0.01)
    ended = []

    async def hostile(job, args, fds=(), on_progress=None):
        own = gate.Gate(tmp_path / "state" / gate.FOLDER, SAME)
        try:
            there = Path(own.admit(args)["staging"])
            with open(there / "segment-00000.parquet", "wb") as file:
                file.write(bytes(3 << 20))
                file.flush()
                await asyncio.Event().wait()
        finally:
            own.remove()
            ended.append(args["staging"])

    with small_disk(tmp_path, "4m"):
        store = Store(tmp_path / "state", StoreLimits(share=1.0))
        gate.prepare(store.root / gate.FOLDER, SAME)
        free = store.space.left()
        with pytest.raises(Exhausted, match=r"of the .* that one user may hold"):
            await Library(store, hostile).import_file(ANN, raw, "t.json")
        assert len(ended) == 1
        assert not staged(store)
        assert free_bytes(tmp_path) > free
        assert (await Library(store, run_job).import_file(BOB, raw, "t.json")).events == 50
        assert store.space.left() <= free
        store.close()


@pytest.mark.parametrize("failing", [False, True])
async def test_cancelled_while_adopting_is_all_or_nothing(library, raw, monkeypatch, failing):
    """The thread that adopts cannot be stopped; nothing may pull its files away."""
    store, adopt = library.store, library.store.adopt
    entered, go_on = threading.Event(), threading.Event()

    def slow(staging, meta):
        entered.set()
        assert go_on.wait(60)
        if failing:
            raise Exhausted("the disk is full")
        return adopt(staging, meta)

    monkeypatch.setattr(store, "adopt", slow)
    told = []
    library._on_use = lambda action, caller, record: told.append((action, caller.user, record.id))
    task = asyncio.create_task(library.import_file(ANN, raw, "t.json"))
    assert await asyncio.to_thread(entered.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    stored = list(whole_traces(store))
    assert len(stored) == (0 if failing else 1)
    assert told == [("trace.import", "ann", trace) for trace in stored]  # for the audit log
    assert not staged(store)


@pytest.mark.parametrize("where", ["an import", "a question"])
async def test_who_goes_away_while_a_place_is_made_leaves_none(library, raw, monkeypatch, where):
    """Cancelled in that moment, again and again, nobody would remove them until the next start of the daemon."""
    mine = add(library.store, ANN)
    entered, go_on = threading.Event(), threading.Event()
    asked = await library.asked(ANN, "top", mine.id, {})
    name = "staging" if where == "an import" else "rollups_staging"
    make, made = getattr(library.store, name), []

    def slow(*given):
        entered.set()
        assert go_on.wait(60)
        made.append(make(*given))
        return made[0]

    monkeypatch.setattr(library.store, name, slow)
    call = library.import_file(ANN, raw, "t.json") if where == "an import" else library.answer(asked)
    task = asyncio.create_task(call)
    assert await asyncio.to_thread(entered.wait, 60)
    task.cancel()
    for _ in range(9):
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.get_running_loop().shutdown_default_executor()
    assert len(made) == 1
    assert not made[0].exists()


@pytest.mark.parametrize("caller", [ANN, ROOT], ids=["a user", "root"])
async def test_what_is_packed_for_who_has_gone_goes_into_no_other_file(library, tmp_path, monkeypatch, caller):
    """A thread that packs names its file by the number of a descriptor, which is soon another file's."""
    record = add(library.store, ANN, capture="c0123456789ab")
    entered, go_on = threading.Event(), threading.Event()

    def slow(asked, names, out):
        entered.set()
        assert go_on.wait(60)
        os.write(out, b"of ann's traces")

    monkeypatch.setattr(library_module, "_packed", slow)
    asked = await library.asked(caller, "top", "", {}, capture=record.capture)
    task = asyncio.create_task(library.answer(asked))
    await assert_writes_nowhere(task, entered, go_on, tmp_path)


async def test_only_regular_files_are_imported(library):
    with open("/dev/null", "rb") as file, pytest.raises(BadInput, match="not a regular file"):
        await library.import_file(ANN, file.fileno(), "null")


async def test_traces_that_others_share_do_not_hide_ones_own(library):
    mine = [add(library.store, ANN, created_ns=number).id for number in range(3)]
    shared = [add(library.store, BOB, created_ns=100 + number) for number in range(12)]
    for record in shared:
        await library.share(BOB, record.id, ["*"])
    foreign = [record.id for record in shared]
    # GIVEN more than fit THEN one's own are among them, newest first
    assert [record.id for record in await library.list(ANN, limit=10)] == [*foreign[:-8:-1], *mine[::-1]]
    assert [record.id for record in await library.list(ANN, limit=2)] == mine[:0:-1]
    # and of others' a fifth at least
    more = [add(library.store, ANN, created_ns=10 + number).id for number in range(9)]
    assert [record.id for record in await library.list(ANN, limit=10)] == [*foreign[:-3:-1], *more[:0:-1]]
    assert len(await library.list(ANN)) == 24
    assert [record.id for record in await library.list(ROOT, limit=2)] == foreign[:-3:-1]


async def test_everybody_sees_their_own_and_admins_all(library):
    mine, other = add(library.store, ANN, created_ns=1), add(library.store, BOB, created_ns=2)
    assert await library.list(ANN) == [mine]
    assert await library.list(BOB) == [other]
    assert await library.list(ROOT) == [other, mine]
    assert await library.list(ROOT, limit=1) == [other]
    assert await library.get(ROOT, mine.id) == mine
    with pytest.raises(Denied, match="profctl share"):
        await library.get(BOB, mine.id)


@pytest.mark.parametrize("names", [[str(BOB.uid)], ["*"], ["nobody", str(BOB.uid)]])
async def test_sharing_lets_others_read_and_nothing_else(library, names):
    mine = add(library.store, ANN)
    await library.share(ANN, mine.id, names)
    assert (await library.get(BOB, mine.id)).id == mine.id
    assert [record.id for record in await library.list(BOB)] == [mine.id]
    for change in (library.pin(BOB, mine.id, True), library.share(BOB, mine.id, []), library.delete(BOB, mine.id)):
        with pytest.raises(Denied, match="belongs to ann"):
            await change
    await library.share(ANN, mine.id, [])
    with pytest.raises(Denied):
        await library.get(BOB, mine.id)


async def test_a_share_is_the_users_and_not_their_names(library):
    mine = add(library.store, ANN)
    await library.share(ANN, mine.id, ["nobody"])
    uid = pwd.getpwnam("nobody").pw_uid
    assert (await library.get(replace(BOB, uid=uid, user="renamed"), mine.id)).id == mine.id
    with pytest.raises(Denied):
        await library.get(replace(BOB, user="nobody"), mine.id)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300, "no-such-user", "-1", "4294967295", "\u0663"])
async def test_names_that_are_none_are_refused(library, name):
    mine = add(library.store, ANN)
    with pytest.raises(BadInput):
        await library.share(ANN, mine.id, [name])


async def test_prefixes_mean_one_trace_that_the_caller_may_read(library):
    second = 1_700_000_000 * 10**9
    ids = []
    for caller, age in ((ANN, 0), (ANN, 0), (BOB, 40_000_000)):
        staging = library.store.staging()
        from profd.model.trace_ids import new_id
        from profd.segments.meta import TraceMeta

        from tests.unit.profd.store.stored import write_trace

        write_trace(staging)
        meta = TraceMeta(trace=new_id(second + age * 10**9), owner_uid=caller.uid, owner=caller.user)
        ids.append(library.store.adopt(staging, meta).id)
    with pytest.raises(BadInput, match="2 traces") as caught:
        await library.get(ANN, ids[0][:3])
    assert ids[0] in str(caught.value)
    assert (await library.get(BOB, ids[2][:3])).id == ids[2]
    with pytest.raises(NotFound):
        await library.get(ANN, ids[2][:-1])
    with pytest.raises(NotFound):
        await library.get(ANN, "%")
    longer = next(length for length in range(7, 14) if ids[0][:length] != ids[1][:length])
    assert (await library.get(ANN, ids[0][:longer])).id == ids[0]


async def test_no_id_means_my_latest(library):
    with pytest.raises(NotFound, match="profctl start"):
        await library.get(ANN, "")
    add(library.store, ANN, created_ns=1)
    latest = add(library.store, ANN, created_ns=2)
    foreign = add(library.store, BOB, created_ns=3)
    assert await library.get(ANN, "") == latest
    assert await library.get(ROOT, "") == foreign


async def test_nothing_is_removed_without_being_named(library):
    add(library.store, ANN)
    with pytest.raises(BadInput, match="Say which"):
        await library.delete(ANN, "")


async def test_questions_reach_the_job_with_the_directory(library):
    mine = add(library.store, ANN)
    asked = []

    async def answer(job, args, fds=(), on_progress=None):
        asked.append((job, args, list(fds)))
        return {"value": {"n": 1}} if job == "summary" else {"value": [1]}

    library = Library(library.store, answer)
    directory = str(library.store.directory(mine.id))

    async def ask(name, trace, fd=9, **arguments):
        return await library.answer(await library.asked(ANN, name, trace, arguments), fd)

    assert await ask("top", "", limit=5, raw=True, fd=-1) == [1]
    assert await ask("tree", mine.id, from_row=2) is None
    assert await ask("diff", mine.id, other="") is None
    assert await ask("summary", mine.id, fd=-1) == {"n": 1, "trace": mine.as_json()}
    assert [job for job, _, _ in asked] == ["top", "tree", "diff", "summary"]
    assert all(args["trace_dir"] == directory for _, args, _ in asked)
    everything = {**dict.fromkeys(("from_ns", "to_ns", "first_step", "last_step")), "thread": ""}
    assert asked[1][1:] == ({"trace_dir": directory, "max_depth": 0, "from_row": 2, **everything}, [9])
    arguments = dict(asked[2][1])
    assert Path(arguments.pop("staging")).parent == library.store.root / "index"
    index = str(library.store.index(mine.id))
    directories = {"trace_dir": directory, "other_dir": directory, "trace_index": index, "other_index": index}
    assert arguments == {**directories, "other": "", "by": "name"}
    assert asked[2][2] == [9]
    assert asked[0][2] == asked[3][2] == []
    for short in ("top", "summary"):
        assert await ask(short, "") is None  # written, so that nobody parses it here
        assert asked[-1][2] == [9]


async def test_a_glance_has_a_place_for_rollups_only_where_it_asks_for_one(library):
    mine, asked = add(library.store, ANN), []
    said = [{"needs_staging": True}, {}, {}]

    async def answer(job, args, fds=(), on_progress=None):
        asked.append({name: args[name] for name in ("asks", "staging") if name in args})
        return said.pop(0)

    library = Library(library.store, answer)
    for _ in range(2):
        await library.answer(await library.asked(ANN, "tiles", mine.id, {}), 9)
    first, second, third = asked
    assert first == third == {"asks": True}
    assert Path(second["staging"]).parent == library.store.root / "index"
    assert [one.name for one in (library.store.root / "index").iterdir() if one.name.startswith(".")] == []


async def test_what_was_kept_is_asked_for_first_where_there_is_something(library):
    mine, asked = add(library.store, ANN), []
    said = []

    async def answer(job, args, fds=(), on_progress=None):
        asked.append((job, [name for name in ("kept_only", "staging") if name in args]))
        return said.pop(0)

    library = Library(library.store, answer)

    async def ask(name, **arguments):
        return await library.answer(await library.asked(ANN, name, mine.id, arguments), 9)

    # GIVEN nothing of the trace was kept THEN there is one job, which may keep something
    said += [{}]
    await ask("summary")
    assert not await library.answer_kept(await library.asked(ANN, "steps", mine.id, {}), 9)
    # WHEN something was THEN it is looked at first, but for a part, which is not kept, and a glance, which looks anyway
    index = library.store.index(mine.id)
    index.mkdir()
    for name in ("summary", "top", "steps", "tiles-lanes"):
        (index / name).touch()
    said += [{}, {"needs_events": True}, {}, {}, {}]
    for name, arguments in (("summary", {}), ("top", {}), ("top", {"first_step": 1}), ("tiles", {})):
        await ask(name, **arguments)
    said += [{}, {"needs_events": True}]
    steps = await library.asked(ANN, "steps", mine.id, {})
    assert [await library.answer_kept(steps, 9) for _ in range(2)] == [True, False]
    assert asked == [
        ("summary", ["staging"]),
        ("summary", ["kept_only"]),
        ("top", ["kept_only"]),
        ("top", ["staging"]),
        ("top", ["staging"]),
        ("tiles", []),
        ("steps", ["kept_only"]),
        ("steps", ["kept_only"]),
    ]


def test_a_trace_is_put_into_an_answer_that_is_not_parsed(library):
    record = add(library.store, ANN)
    text = with_record(b'{"n": {"a": "}"}}\n', record)
    assert json.loads(text) == {"n": {"a": "}"}, "trace": record.as_json()}
    assert with_record(b'{"n": [nobody reads}\n', record).startswith(b'{"n": [nobody reads, "trace": {')


def test_spool_is_nameless(library):
    with library.spool() as file:
        file.write(b"x")
        assert not [entry for entry in library.store.root.iterdir() if entry.name.startswith("tmp")]


async def test_every_reading_verb_and_import_is_told(library, raw):
    """With who read and what; nothing is told of what was denied."""
    told = []

    async def answer(job, args, fds=(), on_progress=None):
        return {"value": {}}

    library._on_use = lambda action, caller, record: told.append((action, caller.user, record.id))
    imported = await library.import_file(ANN, raw, "t.json")
    mine = add(library.store, ANN)
    await library.share(ANN, mine.id, [str(BOB.uid)])
    library._run_job = answer
    questions = (
        "summary",
        "top",
        "tree",
        "merged_tree",
        "export",
        "steps",
        "memory",
        "memory_peak",
        "gpu",
        "timeline",
        "sql",
        "window",
        "traces",
        "explain",
        "critical",
        "ranks",
        "comm",
        "tiles",
        "tiles_index",
        "event",
        "search",
    )
    for name in questions:
        await library.answer(await library.asked(BOB, name, mine.id, {}), 9)
    for name in ("diff", "merged_diff"):
        await library.asked(ANN, name, mine.id, {"other": imported.id})
    with pytest.raises(Denied):
        await library.asked(BOB, "sql", imported.id, {"sql": "select 1"})
    with pytest.raises(BadInput, match="there is no question 'colour'; there are: summary, top, tree"):
        await library.asked(BOB, "colour", mine.id, {})
    assert {"diff", "merged_diff", "watch_host", *questions} == {*QUESTIONS}  # the last of which is of no trace
    verbs = ("show", *questions[1:])
    assert told == [
        ("trace.import", "ann", imported.id),
        *((f"trace.{verb}", "bob", mine.id) for verb in verbs),
        ("trace.diff", "ann", mine.id),
        ("trace.diff", "ann", imported.id),
        ("trace.merged_diff", "ann", mine.id),
        ("trace.merged_diff", "ann", imported.id),
    ]


CAPTURE, ANOTHER = "c0123456789ab", "c0123456789ff"


async def test_of_a_capture_everybody_asks_what_they_may_read(library):
    """Traces of others in the same capture are not asked, not told of, and no capture is known by them."""
    told, jobs = [], []

    async def answer(job, args, fds=(), on_progress=None):
        jobs.append(args)
        return {}

    library._run_job, library._on_use = answer, lambda action, caller, one: told.append((action, caller.user, one.id))
    mine = [add(library.store, ANN, capture=CAPTURE, rank=rank) for rank in range(2)]
    his = add(library.store, BOB, capture=CAPTURE, rank=2)

    async def ask(caller, capture, name="top", **arguments):
        asked = await library.asked(caller, name, "", arguments, capture)
        await library.answer(asked, 9)
        return [one.id for one in asked.traces]

    def directories(*traces):
        return sorted(str(library.store.directory(one.id)) for one in traces)

    assert sorted(await ask(ANN, "c01", by="rank")) == sorted(one.id for one in mine)
    assert (sorted(jobs[0]["trace_dir"]), jobs[0]["by"]) == (directories(*mine), "rank")
    assert sorted(told) == sorted(("trace.top", "ann", one.id) for one in mine)
    assert await ask(BOB, CAPTURE) == [his.id]
    assert len(await ask(ROOT, CAPTURE)) == 3
    stranger = replace(BOB, uid=1003, user="eve")
    with pytest.raises(NotFound, match="no traces of a capture"):
        await ask(stranger, CAPTURE)
    await library.share(ANN, mine[0].id, [str(stranger.uid)])
    assert await ask(stranger, CAPTURE) == [mine[0].id]
    assert (await library.asked(ANN, "top", "", {}, "c01")).capture == CAPTURE
    told.clear()
    assert sorted(await ask(ANN, CAPTURE, "export", format="perfetto")) == sorted(one.id for one in mine)
    assert sorted(told) == sorted(("trace.export", "ann", one.id) for one in mine)
    with pytest.raises(NotFound, match="no traces of a capture"):
        await ask(replace(BOB, uid=1004, user="mallory"), CAPTURE, "export", format="chrome")


async def test_captures_are_looked_up_in_a_thread_and_a_users_one_after_the_other(library, monkeypatch):
    """Of thousands of traces that takes long, and nobody has said yet that there is a worker for the question."""
    for owner in (ANN, BOB):
        add(library.store, owner, capture=CAPTURE)
    looking, gate, where = [], threading.Event(), set()
    traces_of = library._traces_of

    def look(caller, capture):
        looking.append(caller.uid)
        assert gate.wait(60)
        return traces_of(caller, capture)

    monkeypatch.setattr(library, "_traces_of", look)
    library._on_use = lambda action, caller, one: where.add(threading.get_ident())
    asked = [asyncio.create_task(library.asked(caller, "top", "", {}, CAPTURE)) for caller in (ANN, ANN, ANN, BOB)]
    async with asyncio.timeout(60):
        while BOB.uid not in looking:
            await asyncio.sleep(0)
        assert sorted(looking) == [ANN.uid, BOB.uid]
        gate.set()
        await asyncio.gather(*asked)
    assert len(looking) == 4
    assert where
    assert threading.get_ident() not in where


async def test_captures_are_named_by_prefixes_as_traces_are(library):
    first, second = (add(library.store, ANN, capture=capture) for capture in (CAPTURE, ANOTHER))
    add(library.store, BOB, capture="c0123ffffffff")  # decides nothing for others
    add(library.store, ANN)  # of no capture
    with pytest.raises(BadInput, match=f"{CAPTURE}, {ANOTHER}"):
        await library.asked(ANN, "top", "", {}, "c0123")
    both = await library.asked(ANN, "diff", "", {"other": ANOTHER}, CAPTURE)
    assert [one.id for one in both.traces] == [first.id, second.id]
    assert both.arguments["other_dir"] == [str(library.store.directory(second.id))]
    with pytest.raises(BadInput, match="Say which capture"):
        await library.asked(ANN, "diff", "", {}, CAPTURE)


async def test_what_cannot_be_asked_of_a_capture_or_of_a_trace(library):
    mine = add(library.store, ANN, capture=CAPTURE)
    with pytest.raises(BadInput, match="tree cannot be asked of a capture: ask one of its traces"):
        await library.asked(ANN, "tree", "", {}, CAPTURE)
    with pytest.raises(BadInput, match="'by' for a capture, not for a trace"):
        await library.asked(ANN, "top", mine.id, {"by": "rank"})
    with pytest.raises(BadInput, match="rank, host, trace"):
        await library.asked(ANN, "top", "", {"by": "colour"}, CAPTURE)


async def test_a_capture_of_too_many_traces_is_refused(library, monkeypatch):
    monkeypatch.setattr("profd.questions.reading.CAPTURE_TRACES_MAX", 2)
    for rank in range(3):
        add(library.store, ANN, capture=CAPTURE, rank=rank)
    with pytest.raises(Exhausted, match="more than the 2 traces that can be asked"):
        await library.asked(ANN, "top", "", {}, CAPTURE)
