"""The store: entering, asking, changing, bounded."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sqlite3
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from profd.errors import BadInput, BadTrace, Exhausted, NotFound, Unavailable
from profd.limits import SHARES_MAX, MiB
from profd.segments.meta import FORMAT, META_FILE, TraceMeta, encode_json, read_meta
from profd.segments.reader import TraceReader
from profd.store.catalog import CATALOG_FILE
from profd.store.store import Store, StoreLimits

from tests.unit.profd.store.stored import ANN, BOB, add, whole_traces, write_trace

NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    yield opened
    opened.close()


def reopen(store: Store) -> Store:
    store.close()
    return Store(store.root, store.limits)


def test_adopted_trace_is_listed_and_whole(store):
    record = add(store, title="train.py", capture="c1")
    assert list(whole_traces(store)) == [record.id]
    assert store.get(record.id) == record
    assert (record.owner, record.title, record.events) == ("ann", "train.py", 50)
    on_disk = sum(entry.stat().st_size for entry in store.directory(record.id).iterdir())
    assert 0.9 * on_disk < record.bytes <= on_disk  # what a trace says of itself grows when it is adopted
    assert store.of_capture("c1") == [record]
    assert store.newest_of(ANN.uid, 5) == [record]
    assert store.newest_of(BOB.uid, 5) == []


def test_who_owns_a_trace_is_not_the_workers_to_say(store):
    staging = store.staging()
    write_trace(staging, meta=TraceMeta(trace="0" * 13, owner_uid=0, owner="root", source="forged"))
    record = store.adopt(staging, TraceMeta(trace=store.new_id(), owner_uid=7, owner="eve", source="import"))
    assert (record.owner_uid, record.owner, record.source) == (7, "eve", "import")
    assert read_meta(store.directory(record.id)).owner_uid == 7


def spoil(name):
    def with_link(staging):
        (staging / name).unlink(missing_ok=True)
        (staging / name).symlink_to("/etc/passwd")

    return with_link


def hard_link(staging):
    os.link(staging / "segment-00000.parquet", staging.parent.parent / "elsewhere")


def stranger(staging):
    (staging / "more.txt").write_text("x")


def missing(staging):
    (staging / "segment-00000.parquet").unlink()


def fifo(staging):
    os.mkfifo(staging / "late.parquet")


def outside(staging):
    text = (staging / META_FILE).read_text()
    (staging / META_FILE).write_text(text.replace("segment-00000.parquet", "../../records/x"))


@pytest.mark.parametrize(
    "damage", [spoil("late.parquet"), spoil("segment-00000.parquet"), hard_link, stranger, missing, fifo, outside]
)
def test_what_no_worker_leaves_is_refused(store, damage):
    staging = store.staging()
    write_trace(staging)
    damage(staging)
    with pytest.raises(BadInput):
        store.adopt(staging, TraceMeta(trace=store.new_id()))
    assert list(store.traces.iterdir()) == [staging]
    assert store.newest_first() == []


def test_unfinished_staging_is_refused(store):
    with pytest.raises(NotFound):
        store.adopt(store.staging(), TraceMeta(trace=store.new_id()))


def test_pins_and_shares_outlive_the_catalog(store):
    record = add(store)
    other = add(store)
    store.pin(record.id, True)
    store.share(record.id, ["nobody", "*", "nobody"])
    store.close()
    (store.root / CATALOG_FILE).unlink()
    store = Store(store.root, store.limits)
    found = store.get(record.id)
    assert (found.pinned, found.readers) == (True, {"*": -1, "nobody": NOBODY})
    assert not store.get(other.id).pinned
    assert not store.pin(record.id, False).pinned
    assert store.share(record.id, []).readers == {}
    with pytest.raises(BadInput, match=r"use '\*'"):
        store.share(record.id, [str(number) for number in range(SHARES_MAX + 1)])
    store.close()


def test_names_of_an_older_store_are_the_uids_that_they_have_now(store, caplog):
    record = add(store)
    store.close()
    mark = store.root / "records" / "traces" / f"{record.id}.json"
    mark.write_text(json.dumps({"pinned": True, "shared_with": ["nobody", "no-such-user", "4242", "*"]}))
    store = Store(store.root, store.limits)
    found = store.get(record.id)
    assert (found.pinned, found.readers) == (True, {"nobody": NOBODY, "4242": 4242, "*": -1})
    assert "no user 'no-such-user'" in caplog.records[-1].why
    assert json.loads(mark.read_text())["readers"] == found.readers
    store.close()


def test_deleted_trace_is_gone_and_its_marks_with_it(store):
    record = add(store)
    store.share(record.id, ["nobody"])
    store.delete(record.id)
    with pytest.raises(NotFound):
        store.get(record.id)
    with pytest.raises(NotFound):
        store.delete(record.id)
    assert not list((store.root / "records" / "traces").iterdir())
    assert not list(store.traces.iterdir())


@pytest.mark.parametrize("trace", ["", ".", "..", "../../etc/passwd", "x" * 13 + "/", "\0", "0" * 14, "O" * 13])
def test_ids_are_never_paths(store, trace):
    add(store)
    with pytest.raises(NotFound):
        store.get(trace)
    with pytest.raises(NotFound):
        store.delete(trace)


def test_oldest_unpinned_go_first(store):
    records = [add(store, rows=200, created_ns=number) for number in range(5)]
    store.pin(records[1].id, True)
    store.limits = StoreLimits(bytes=sum(record.bytes for record in records) - 1, share=1.0)
    assert store.enforce() == [records[0].id]
    store.limits = StoreLimits(bytes=records[1].bytes + records[4].bytes, share=1.0)
    assert store.enforce() == [records[2].id, records[3].id]
    assert store.enforce() == []
    store.limits = StoreLimits(bytes=1, share=1.0)
    assert store.enforce() == [records[4].id]
    statistics = store.statistics()
    assert (statistics.evicted, statistics.traces) == (4, 1)
    assert statistics.bytes == records[1].bytes


def test_trace_that_cannot_fit_is_not_stored(store):
    kept = add(store)
    store.pin(kept.id, True)
    store.limits = StoreLimits(bytes=kept.bytes + 10, share=1.0)
    with pytest.raises(Exhausted, match="unpin or remove"):
        add(store)
    assert [record.id for record in store.newest_first()] == [kept.id]


def test_below_the_free_share_nothing_new_is_begun(store):
    store.limits = StoreLimits(free_share_min=1.0)
    with pytest.raises(Exhausted, match="profctl rm"):
        store.staging()


def test_two_processes_cannot_have_one_store(store):
    with pytest.raises(Unavailable, match="running profd"):
        Store(store.root)


def test_leftovers_are_swept_at_the_next_start(store):
    add(store)
    write_trace(store.staging())
    (store.traces / ".trash-1zzzzzzzzzzzz.1").mkdir()
    for earlier in ("staging", "trash"):  # of builds that moved traces between directories
        (store.root / earlier / "old").mkdir(parents=True)
    (store.root / "records" / "traces" / ".x.json.1").write_text("half")
    (store.root / "records" / "traces" / "1zzzzzzzzzzzz.json").write_text("{}")
    store = reopen(store)
    assert not list((store.root / "records" / "traces").iterdir())
    assert [path.name for path in store.traces.iterdir()] == list(whole_traces(store))
    assert not {"staging", "trash"}.intersection(path.name for path in store.root.iterdir())
    store.close()


def test_catalog_follows_the_directories(store):
    gone, kept = add(store), add(store)
    shutil.rmtree(store.directory(gone.id))
    copied = "1" * 13
    shutil.copytree(store.directory(kept.id), store.directory(copied))
    store = reopen(store)
    assert {record.id for record in store.newest_first()} == {kept.id, copied}
    store.close()


@pytest.mark.parametrize("bytes_kept", [0, 10, 100, 5000])
@pytest.mark.parametrize("garbage", [b"", b"\xff" * 5000])
def test_damaged_catalog_is_built_again(store, bytes_kept, garbage):
    records = {add(store).id for _ in range(3)}
    store.close()
    path = store.root / CATALOG_FILE
    path.write_bytes(path.read_bytes()[:bytes_kept] + garbage)
    store = Store(store.root, store.limits)
    assert set(whole_traces(store)) == records
    store.close()


def test_catalog_of_a_newer_release_is_put_aside(store):
    record = add(store)
    store.close()
    with sqlite3.connect(store.root / CATALOG_FILE) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    store = Store(store.root, store.limits)
    assert list(whole_traces(store)) == [record.id]
    assert (store.root / f"{CATALOG_FILE}.damaged").exists()
    store.close()


def test_nobody_waits_for_a_pipe_in_the_place_of_a_file(store):
    record = add(store)
    for path in (store.directory(record.id) / META_FILE, store.root / "records" / "traces" / f"{record.id}.json"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    (store.root / CATALOG_FILE).unlink()
    store = reopen(store)
    assert store.get(record.id).damaged.startswith(f"{record.id}/{META_FILE} is damaged: ")
    assert store.get(record.id).pinned  # as where its record is damaged
    store.close()


def test_who_goes_back_to_an_earlier_release_and_on_again_has_all_traces(store):
    record = store.pin(add(store).id, True)
    path = store.directory(record.id) / META_FILE
    text = path.read_text()
    path.write_text(text.replace(f'"format":{FORMAT}', f'"format":{FORMAT + 1}'))
    (store.root / CATALOG_FILE).unlink()  # of a later schema it is put aside
    store = reopen(store)
    unread = store.get(record.id)
    assert (unread.owner_uid, unread.title, unread.pinned) == (-1, "(damaged)", True)
    path.write_text(text)
    store = reopen(store)
    assert store.get(record.id) == record
    store.close()


def test_locked_catalog_says_so(store, monkeypatch):
    record = add(store)
    monkeypatch.setattr("profd.store.catalog._BUSY_MILLISECONDS", 1)
    store = reopen(store)
    other = sqlite3.connect(store.root / CATALOG_FILE, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="locked by another program"):
            store.pin(record.id, True)
        with pytest.raises(Unavailable, match="locked by another program"):
            add(store)
    finally:
        other.close()
    assert store.pin(record.id, True).pinned
    assert {path.name for path in store.traces.iterdir()} == {record.id}
    store.close()


def test_damaged_trace_can_be_seen_and_removed(store):
    record, healthy = add(store), add(store)
    (store.directory(record.id) / META_FILE).write_bytes(b'{"events": "many"}')
    traces, damaged = store.rebuild()
    assert traces == 2
    assert len(damaged) == 1
    assert record.id in damaged[0]
    assert store.get(record.id).owner_uid == -1
    with pytest.raises(BadTrace):
        TraceReader(store.directory(record.id))
    store.delete(record.id)
    assert [kept.id for kept in store.newest_first()] == [healthy.id]


def test_damaged_marks_keep_the_trace_and_show_it_to_nobody(store):
    record = add(store)
    store.share(record.id, ["nobody"])
    (store.root / "records" / "traces" / f"{record.id}.json").write_bytes(b"{")
    store.rebuild()
    found = store.get(record.id)
    assert (found.pinned, found.readers) == (True, {})


def test_readers_and_deletion_at_the_same_time(store):
    """A reader gets the whole trace or NotFound, whenever the deletion comes."""
    records = [add(store) for _ in range(20)]

    def read(trace: str) -> int:
        try:
            return len(TraceReader(store.directory(trace)).read())
        except NotFound:
            return -1

    with ThreadPoolExecutor(4) as threads:
        reading = [threads.submit(read, record.id) for record in records for _ in range(5)]
        for record in records:
            store.delete(record.id)
        assert {future.result() for future in reading} <= {50, -1}
    assert store.newest_first() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_directory_says_so(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(Exhausted, match="Permission denied"):
        Store(tmp_path / "state")


def test_file_in_the_way_says_so(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(Exhausted, match="File exists"):
        Store(tmp_path / "state")


def test_what_a_trace_says_of_itself_is_nowhere_made_objects_of(store):
    """GIVEN a description that takes seventy times its text as objects WHEN a trace comes, is pinned, shared and found
    again THEN the store never holds that much."""
    lists, staging = 600_000, store.staging()
    meta = write_trace(staging)
    text = encode_json(meta).replace(b'"top_level":{}', b'"top_level":{"x":[%b]}' % b",".join([b"[]"] * lists))
    (staging / META_FILE).write_bytes(text)
    tracemalloc.start()
    try:
        record = store.adopt(staging, TraceMeta(trace=store.new_id(), owner_uid=ANN.uid, owner="ann"))
        adopting = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        store.pin(record.id, True)
        store.share(record.id, ["*"])
        marking = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        store.rebuild()
        rebuilding = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(text) > 3 * lists - 1
    assert max(adopting, rebuilding) < 24 * MiB  # as objects 36 MiB, beside the text
    assert marking < len(text)
    assert store.get(record.id).pinned
    assert read_meta(store.directory(record.id)).owner_uid == ANN.uid
