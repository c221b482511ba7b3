"""Exported captures in the place of a store: read as they say that they are, and refused where they are not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadTrace, NotFound
from profd.offline import run_here
from profd.query.captured import Member
from profd.questions.reading import ReadLibrary
from profd.segments.place import NULL
from profd.store.cached import CachedRollups, cache
from profd.store.exported import COMMIT_FILE, ExportedStore
from profd.trust.caller import Caller

from tests.support.many_ranks import CAPTURE, member, training

RANKS = {"rank0": 0, "rank1": 1, "child": 1, "loader": None}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two ranks, a child of one, and a process without a rank, as `profctl export --to` writes them."""
    folder = tmp_path / "out" / f"capture={CAPTURE}"
    traces = []
    for name, rank in RANKS.items():
        path = f"host=node0/rank={NULL if rank is None else rank}/trace={name}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        member(tmp_path, rank, training(rank or 0), name).rename(folder / path)
        files = {file.name: _stated(file) for file in sorted((folder / path).iterdir())}
        traces.append({"host": "node0", "rank": rank, "trace": name, "path": path, "files": files})
    _commit(tmp_path / "out", {"format": 1, "capture": CAPTURE, "traces": traces})
    return tmp_path / "out"


def _stated(file: Path) -> dict[str, Any]:
    return {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def _commit(root: Path, commit: Any) -> None:
    text = commit if isinstance(commit, str) else json.dumps(commit)
    (root / f"capture={CAPTURE}" / COMMIT_FILE).write_text(text)


def committed(root: Path) -> Any:
    return json.loads((root / f"capture={CAPTURE}" / COMMIT_FILE).read_text())


def segment(root: Path, name: str = "rank0") -> Path:
    (path,) = root.glob(f"*/*/*/trace={name}/segment-00000.parquet")
    return path


def test_what_a_store_answers(root: Path) -> None:
    store = ExportedStore(root)
    assert ExportedStore.is_one(root)
    assert sorted(one.id for one in store.newest_first()) == sorted(RANKS)
    assert len(store.newest_first(1)) == 1
    assert [one.id for one in store.with_prefix("rank")] == ["rank0", "rank1"]
    assert {one.id: one.rank for one in store.with_capture_prefix("c01")} == RANKS
    assert store.with_capture_prefix("c02") == []
    assert store.directory("child") == segment(root, "child").parent
    assert store.meta("rank1").events == store.get("rank1").events == 16
    assert store.newest_of(12345, 5) == []
    with pytest.raises(NotFound, match="no trace 'rank9'"):
        store.get("rank9")
    for trace in RANKS:
        store.check(trace)


def test_what_lies_beside_is_not_of_it(root: Path) -> None:
    (segment(root).parent / "segment-00001.parquet").write_text("of somebody else")
    (root / "README").write_text("x")
    (root / f"capture={CAPTURE}" / "host=node0" / "rank=7" / "trace=x").mkdir(parents=True)
    assert {one.id for one in ExportedStore(root).with_capture_prefix(CAPTURE)} == RANKS.keys()


async def of_capture(root: Path, question: str) -> Any:
    library, me = ReadLibrary(ExportedStore(root), run_here), Caller(0, 0, "root", admin=True, pid=1)
    with os.fdopen(os.memfd_create("answer"), "rb") as file:
        await library.answer(await library.asked(me, question, "", {}, CAPTURE), file.fileno())
        file.seek(0)
        return json.load(file)


@pytest.mark.parametrize("question", ["traces", "steps", "ranks", "top"])
async def test_ranks_behind_the_last_one_and_hosts_that_nothing_came_from_are_named(root: Path, question: str) -> None:
    """GIVEN a collected capture whose last ranks, and one host, did not come THEN each answer says so."""
    before = await of_capture(root, question)
    assert (before["missing_ranks"], before["missing_hosts"]) == ([], [])
    gone = [("node0", 3, "its process ended"), ("node0", 1, "held"), ("node0", None, "a launcher"), ("node1", None, "")]
    missing = [{"host": host, "rank": rank, "why": why} for host, rank, why in gone]
    _commit(root, {**committed(root), "missing": missing})
    after = await of_capture(root, question)
    assert (after["missing_ranks"], after["missing_hosts"]) == ([[2, 3]], ["node1"])


@pytest.mark.parametrize("lie", [{"rank": -1}, {"rank": 1 << 40}, {"host": "node0"}, {}])
async def test_what_a_commit_calls_missing_is_bounded(root: Path, lie: dict[str, Any]) -> None:
    _commit(root, {**committed(root), "missing": [lie]})
    answer = await of_capture(root, "traces")
    assert (answer["missing_ranks"], answer["missing_hosts"]) == ([], [])


def _of_many_hosts(root: Path, **files: Any) -> None:
    """The same capture as `collect` writes it, which names the capture of each host; `files`: those of the first."""
    commit = _files(committed(root), **files) if files else committed(root)
    _commit(root, {**commit, "traces": [{**one, "capture": CAPTURE} for one in commit["traces"]]})


async def assert_answers_without_the_first(root: Path, why: str) -> None:
    answer = await of_capture(root, "traces")
    assert sorted(one["trace"] for one in answer["traces"]) == ["child", "loader", "rank1"]
    (unread,) = answer["unread"]
    assert (unread["rank"], unread["host"], unread["trace"]) == (0, "node0", "rank0")
    assert why in unread["why"]
    assert answer["missing_ranks"] == [[0, 0]]
    with pytest.raises(BadTrace, match=why):  # a list without it would hide it
        ExportedStore(root).newest_first()
    with pytest.raises(BadTrace, match=why):
        ExportedStore(root).get("rank0")


async def test_a_trace_that_is_not_what_its_host_lists_keeps_nobody_from_the_others(root: Path) -> None:
    path = segment(root).with_name("meta.json")
    whole = path.read_text()
    for text, why in [
        (whole.replace('"rank":0', '"rank":7'), "says otherwise"),
        (whole.replace('"trace":"rank0"', '"trace":"x"'), "says otherwise"),
        (whole[:-10], "damaged"),
        (json.dumps({**json.loads(whole), "lost": [{"stage": "", "reason": "", "count": 1}] * 200_000}), "says more"),
        (whole.replace("segment-00000", "segment-00009"), "has records in segment-00009.parquet"),
    ]:
        path.write_text(text)
        _of_many_hosts(root, **{"meta.json": _stated(path)})
        await assert_answers_without_the_first(root, why)
    os.truncate(path, 1 << 40)
    _of_many_hosts(root, **{"meta.json": {"bytes": 1 << 40, "sha256": ""}})
    await assert_answers_without_the_first(root, "larger than")
    commit = committed(root)
    _commit(root, _first(commit, files={}))
    await assert_answers_without_the_first(root, "names no meta.json")


async def test_an_id_that_another_capture_has_is_read_there(root: Path) -> None:
    """GIVEN a second capture in the folder, of a host that lists a trace by the id of one that is there."""
    _of_many_hosts(root)
    second = root / "capture=f0123456789ab"
    shutil.copytree(root / f"capture={CAPTURE}", second)
    other = {**committed(root), "capture": "f0123456789ab"}
    (second / COMMIT_FILE).write_text(json.dumps(other))
    assert len(ExportedStore(root).with_capture_prefix(CAPTURE)) == len(RANKS)
    with pytest.raises(BadTrace, match="which is there already"):
        ExportedStore(root).with_capture_prefix("f0")


async def test_a_copy_that_is_damaged_is_refused_of_many_hosts_too(root: Path) -> None:
    _of_many_hosts(root)
    path = segment(root).with_name("meta.json")
    path.write_text(path.read_text().replace('"rank":0', '"rank":7'))
    with pytest.raises(BadTrace, match=r"meta\.json is not what was written"):
        ExportedStore(root).with_capture_prefix(CAPTURE)


def test_bytes_that_changed_are_found_when_they_are_looked_for(root: Path) -> None:
    path = segment(root)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    store = ExportedStore(root)
    store.check("rank1")
    with pytest.raises(BadTrace, match=r"trace=rank0/segment-00000\.parquet has changed since"):
        store.check("rank0")


def _first(commit: Any, **fields: Any) -> Any:
    return {**commit, "traces": [{**commit["traces"][0], **fields}, *commit["traces"][1:]]}


def _files(commit: Any, **files: Any) -> Any:
    return _first(commit, files={**commit["traces"][0]["files"], **files})


LIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "no JSON": (lambda commit: "{", "is damaged"),
    "another shape": (lambda commit: [1], "is damaged"),
    "deep": (lambda commit: "[" * 100_000, "is damaged"),
    "a later format": (lambda commit: {**commit, "format": 2}, "has format 2, this profctl reads up to 1"),
    "no traces": (lambda commit: {**commit, "traces": []}, "names 0 traces"),
    "another capture": (lambda commit: {**commit, "capture": "c99"}, "is of the capture 'c99'"),
    "a trace twice": (lambda commit: {**commit, "traces": commit["traces"] * 2}, "which is there already"),
    "another rank": (lambda commit: _first(commit, rank=5, path="host=node0/rank=5/trace=rank0"), "missing"),
    "a rank that its path has not": (lambda commit: _first(commit, rank=5), "no export does"),
    "a rank that no job has": (
        lambda commit: _first(commit, rank=1 << 40, path=f"host=node0/rank={1 << 40}/trace=rank0"),
        "no job has",
    ),
    "a rank beyond 64 bits": (lambda commit: _first(commit, rank=1 << 64), "no job has|is damaged"),
    "a negative rank": (lambda commit: _first(commit, rank=-1, path="host=node0/rank=-1/trace=rank0"), "no job has"),
    "a path that leads out": (lambda commit: _first(commit, path="../host=node0/rank=0/trace=rank0"), "no export does"),
    "an absolute path": (lambda commit: _first(commit, path="/etc/rank=0/trace=rank0"), "no export does"),
    "a trace that is a path": (
        lambda commit: _first(commit, trace="../x", path="host=node0/rank=0/trace=../x"),
        "no exp",
    ),
    "a file that is a path": (lambda commit: _files(commit, **{"../../x": {"bytes": 1, "sha256": ""}}), "no trace has"),
    "a file that is not there": (lambda commit: _files(commit, x={"bytes": 1, "sha256": ""}), "is missing"),
    "other bytes": (lambda commit: _files(commit, **{"meta.json": {"bytes": 3, "sha256": ""}}), "written with 3"),
    "no description": (lambda commit: _first(commit, files={}), "names no meta.json"),
    "no events": (
        lambda commit: _first(commit, files={"meta.json": commit["traces"][0]["files"]["meta.json"]}),
        "has records in segment-00000.parquet, which",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_commit_that_lies_is_refused(root: Path, name: str) -> None:
    lie, says = LIES[name]
    _commit(root, lie(committed(root)))
    store = ExportedStore(root)  # others in it would be read
    for ask in (lambda: store.with_capture_prefix("c01"), store.newest_first, lambda: store.with_prefix("rank0")):
        with pytest.raises(BadTrace, match=says):
            ask()


def test_a_description_that_is_not_the_one_that_was_written(root: Path) -> None:
    path = segment(root).with_name("meta.json")
    text = path.read_text()
    path.write_text(text.replace('"rank":0', '"rank":5'))
    with pytest.raises(BadTrace, match=r"meta\.json is not what was written"):
        ExportedStore(root).with_capture_prefix(CAPTURE)
    # AND one whose sum was changed along with it
    commit = committed(root)
    _commit(root, _files(commit, **{"meta.json": _stated(path)}))
    with pytest.raises(BadTrace, match="says otherwise"):
        ExportedStore(root).with_capture_prefix(CAPTURE)


def test_what_a_trace_says_at_length_is_not_held(root: Path) -> None:
    """A capture has thousands of traces, and a host says what it likes of each."""
    path = segment(root).parent / "meta.json"
    meta = json.loads(path.read_text())
    path.write_text(json.dumps({**meta, "waterfall": "x" * (8 << 20)}))
    _commit(root, _files(committed(root), **{"meta.json": _stated(path)}))
    assert len(ExportedStore(root).newest_first()) == len(RANKS)
    path.write_text(json.dumps({**meta, "lost": [{"stage": "", "reason": "", "count": 1}] * 200_000}))
    _commit(root, _files(committed(root), **{"meta.json": _stated(path)}))
    with pytest.raises(BadTrace, match="says more than"):
        ExportedStore(root).newest_first()
    # AND of a hole of a TiB not a byte is read
    os.truncate(path, 1 << 40)
    _commit(root, _files(committed(root), **{"meta.json": {"bytes": 1 << 40, "sha256": ""}}))
    with pytest.raises(BadTrace, match="larger than"):
        ExportedStore(root).newest_first()


@pytest.mark.parametrize("what", ["meta.json", "segment-00000.parquet", "."])
def test_links_are_not_followed(root: Path, tmp_path: Path, what: str) -> None:
    path = segment(root).parent / what
    moved = (tmp_path / "elsewhere").resolve()
    shutil.move(path, moved)
    path.resolve().symlink_to(moved)
    with pytest.raises(BadTrace, match="is no "):
        ExportedStore(root).with_capture_prefix(CAPTURE)


@pytest.mark.parametrize("what", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_a_commit_that_never_ends_is_not_read(root: Path, what: Callable[[Path], None]) -> None:
    """Root is led to no pipe that nobody writes into, and to no device without an end."""
    path = root / f"capture={CAPTURE}" / COMMIT_FILE
    path.unlink()
    what(path)
    with pytest.raises(BadTrace, match="cannot be read"):
        ExportedStore(root).with_capture_prefix(CAPTURE)


def test_a_file_that_becomes_a_pipe_is_not_waited_for(root: Path) -> None:
    store, path = ExportedStore(root), segment(root)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadTrace, match="no plain file"):
        store.check("rank0")


def test_a_capture_that_was_not_written_to_its_end(root: Path) -> None:
    (root / f"capture={CAPTURE}" / COMMIT_FILE).unlink()
    with pytest.raises(BadTrace, match=f"has no {COMMIT_FILE}: it was not written to its end"):
        ExportedStore(root).with_capture_prefix(CAPTURE)


def test_one_bad_capture_keeps_nobody_from_another(root: Path) -> None:
    (root / "capture=c9").mkdir()
    store = ExportedStore(root)
    assert len(store.with_capture_prefix("c01")) == len(RANKS)
    assert store.get("rank0").rank == 0
    with pytest.raises(BadTrace, match="capture=c9"):
        store.newest_first()  # a list without it would hide it


class Asker:
    """Somebody who asks captures, with a cache."""

    def __init__(self, root: Path, cache: Path, most: int = 1 << 30) -> None:
        self.cache = cache
        self._stored = ExportedStore(root, CachedRollups(cache, most))
        self._me = Caller(os.getuid(), os.getgid(), "me", admin=True, pid=os.getpid())

    def top(self) -> Any:
        library = ReadLibrary(self._stored, run_here)

        async def ask() -> Any:
            return await library.answer(await library.asked(self._me, "top", "", {}, CAPTURE))

        return asyncio.run(ask())

    def kept(self) -> list[str]:
        return sorted(path.name for path in self.cache.glob("*/*"))


def test_what_was_worked_out_is_kept_in_the_cache_of_who_asks_and_not_where_the_capture_lies(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {*root.rglob("*")}
    told = Asker(root, tmp_path / "cache").top()
    assert Asker(root, tmp_path / "cache").kept() == ["top"] * len(RANKS)
    with monkeypatch.context() as patch:
        patch.setattr(Member, "open", None)  # no trace is read
        assert Asker(root, tmp_path / "cache").top() == told
    assert {*root.rglob("*")} == before
    # GIVEN a capture that was written anew THEN what was kept of the other one does not answer
    _commit(root, {**committed(root), "more": 1})
    assert Asker(root, tmp_path / "cache").top() == told
    assert Asker(root, tmp_path / "cache").kept() == ["top"] * 2 * len(RANKS)


def test_what_was_worked_out_of_a_forged_copy_does_not_answer_for_the_true_one(root: Path, tmp_path: Path) -> None:
    """GIVEN files of the names, sizes and times that a true commit has; nobody has asked for their sums."""

    def kept_at(where: Path) -> Path | None:
        return ExportedStore(where, CachedRollups(tmp_path / "cache")).index("rank0")

    true = kept_at(root)
    assert kept_at(root) == true
    assert kept_at(Path(shutil.copytree(root, tmp_path / "sent"))) != true
    path = segment(root)
    times = path.stat()
    path.write_bytes(bytes(times.st_size))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert kept_at(root) != true


def test_the_cache_is_bounded_and_need_not_be_there(root: Path, tmp_path: Path) -> None:
    asker = Asker(root, tmp_path / "cache")
    told = asker.top()
    largest = max(file.stat().st_size for file in asker.cache.glob("*/*"))
    small = Asker(root, tmp_path / "small", most=2 * largest)
    assert small.top() == told
    assert 0 < len(small.kept()) < len(RANKS)
    assert small.top() == told
    assert not any(tmp_path.glob("*/.staging-*"))
    (tmp_path / "file").touch()
    assert Asker(root, tmp_path / "file").top() == told


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away takes root")
@pytest.mark.parametrize("whose", ["", "cache", "cache/profd", "cache/profd/rollups"])
def test_nothing_is_kept_or_removed_in_a_cache_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    """As after `su` without a dash: `rollups` may be a link of theirs, and what is too much in it goes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache/profd/rollups").mkdir(parents=True)
    assert cache() == tmp_path / "cache/profd/rollups"
    os.chown(tmp_path / whose, 65534, 65534)
    assert cache() is None
