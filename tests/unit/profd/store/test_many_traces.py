"""What a user is shown costs what this user may see; and nobody has any number of traces."""

from __future__ import annotations

import os
import random
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from profd.errors import BadInput, Exhausted, NotFound
from profd.model.capture import Loss
from profd.questions.reading import ReadLibrary
from profd.store.access import may_read
from profd.store.catalog import CATALOG_FILE, EVERYBODY_UID, Catalog, TraceRecord
from profd.store.store import Store, StoreLimits
from profd.trust.caller import Caller

from tests.unit.profd.store.stored import ANN, BOB, ROOT, add, run_job

MOST = 3


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog")
    yield opened
    opened.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "state", StoreLimits(free_share_min=0.0, traces_per_uid=MOST))
    yield opened
    opened.close()


def put(catalog: Catalog, number: int, owner: Caller, capture: str = "", **readers: int) -> TraceRecord:
    record = TraceRecord(
        id=f"06v{number:04d}aaaaaa",
        owner=owner.user,
        owner_uid=owner.uid,
        capture=capture,
        created_ns=number // 2,
        readers=readers,
    )
    catalog.put(record)
    return record


def library_of(catalog: Catalog) -> ReadLibrary:
    return ReadLibrary(catalog, run_job)  # type: ignore[arg-type]  # it lists, and reads no trace


def test_records_of_others_are_not_decoded(catalog: Catalog) -> None:
    """What cannot be decoded is a trace of somebody else's."""
    own = put(catalog, 1, ANN, "c1")
    put(catalog, 2, BOB, "c2")
    with catalog._transaction() as db:
        db.execute("UPDATE traces SET record = x'00' WHERE owner_uid = ?", (BOB.uid,))
    library = library_of(catalog)
    assert library._visible(ANN, 50) == [own]
    for trace in ("", "0", own.id[:6]):
        assert library._resolve(ANN, trace) == own
    assert library._traces_of(ANN, "c") == [own]


def listed(records: Sequence[TraceRecord], caller: Caller, limit: int) -> list[TraceRecord]:
    """By looking at all of them."""
    readable = [record for record in records if may_read(caller, record)]
    if caller.admin or len(readable) <= limit:
        return readable[:limit]
    own = [record for record in readable if record.owner_uid == caller.uid]
    others = [record for record in readable if record.owner_uid != caller.uid]
    of_others = min(len(others), max(limit - len(own), limit // 5))
    chosen = [*own[: limit - of_others], *others[:of_others]]
    return [record for record in readable if record in chosen]


@pytest.mark.parametrize("seed", range(5))
def test_lists_are_those_of_looking_at_everything(catalog: Catalog, seed: int) -> None:
    chance = random.Random(seed)
    readers = {"ann": ANN.uid, "bob": BOB.uid, "*": EVERYBODY_UID}
    for number in chance.sample(range(60), 60):
        shared = {name: readers[name] for name in readers if chance.random() < 0.2}
        put(catalog, number, chance.choice((ANN, ANN, BOB, ROOT)), chance.choice(("", "c1", "c12", "c2")), **shared)
    for record in chance.sample(catalog.newest_first(), 20):  # shared otherwise, and removed
        catalog.put(msgspec.structs.replace(record, readers={}))
    for record in chance.sample(catalog.newest_first(), 5):
        catalog.remove([record.id])
    everything = catalog.newest_first()
    library = library_of(catalog)
    for caller in (ANN, BOB, ROOT):
        for limit in (1, 5, 20, 100):
            assert library._visible(caller, limit) == listed(everything, caller, limit)
        readable = sorted((one for one in everything if may_read(caller, one)), key=lambda one: (one.capture, one.id))
        uid = None if caller.admin else caller.uid
        assert catalog.with_prefix("06v000", uid) == sorted(
            (one for one in readable if one.id.startswith("06v000")), key=lambda one: one.id
        )
        for prefix in ("c", "c1", "c12", "c9"):
            begun = [one for one in readable if one.capture.startswith(prefix)]
            whole = [one for one in begun if one.capture == prefix] if uid is not None else []
            found = catalog.with_capture_prefix(prefix, uid)
            assert [one.id for one in found] == [one.id for one in whole or begun]
            assert all(caller.admin or may_read(caller, one) for one in found)


def steps(catalog: Catalog, ask: Callable[[], object]) -> int:
    """Of SQLite's virtual machine."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    catalog._db.set_progress_handler(count, 1)
    try:
        ask()
    finally:
        catalog._db.set_progress_handler(None, 0)
    return taken


def test_beginnings_of_ids_cost_what_the_asker_may_see(catalog: Catalog) -> None:
    put(catalog, 1, ANN, "c1")
    put(catalog, 2, BOB, "c2", ann=ANN.uid)
    for number in range(3, 10):
        put(catalog, number, BOB, f"c{number}")
    asked = {
        "trace": lambda: catalog.with_prefix("0", ANN.uid, 101),
        "capture": lambda: catalog.with_capture_prefix("c", ANN.uid, 101),
        "whole": lambda: catalog.with_capture_prefix("c1", ANN.uid, 101),
    }
    before = {name: steps(catalog, ask) for name, ask in asked.items()}
    for number in range(10, 1010):
        put(catalog, number, BOB, f"c{number}")
    assert {name: steps(catalog, ask) for name, ask in asked.items()} == before


def test_records_that_questions_hold_are_small(catalog: Catalog) -> None:
    """Sixteen questions that wait for a worker have those of thousands of traces each."""
    for number in range(300):
        record = put(catalog, number, ANN, "c1", bob=BOB.uid, **{str(uid): uid for uid in range(10**6, 10**6 + 250)})
        lost = [Loss("decode", f"reason_{reason}", 1) for reason in range(64)]
        catalog.put(msgspec.structs.replace(record, title="t" * 4096, host="h" * 4096, truncated="c" * 4096, lost=lost))
    tracemalloc.start()
    try:
        for caller in (ANN, BOB, ROOT):
            found = library_of(catalog)._traces_of(caller, "c1")
            held, _ = tracemalloc.get_traced_memory()
            assert len(found) == 300
            assert held < 300 * 2000
            del found
    finally:
        tracemalloc.stop()


def test_readers_of_an_earlier_catalog_are_found(store: Store) -> None:
    record = add(store)
    store.share(record.id, [str(BOB.uid)])
    store.close()
    with sqlite3.connect(store.root / CATALOG_FILE) as db:
        db.executescript("DROP TABLE readers; PRAGMA user_version=1")
    db.close()
    again = Store(store.root, store.limits)
    try:
        assert [one.id for one in again.newest_shared(BOB.uid, 5)] == [record.id]
        assert not (store.root / f"{CATALOG_FILE}.damaged").exists()
    finally:
        again.close()


def test_the_oldest_of_a_user_go_for_one_more(store: Store) -> None:
    others = [add(store, BOB).id for _ in range(MOST)]
    pinned, *kept = [add(store, ANN, created_ns=number).id for number in range(1, MOST + 3)]
    store.pin(pinned, True)
    assert store.preview(ANN.uid, 100).gone == kept[:3]
    assert (store.preview(BOB.uid, 100).gone, store.preview(BOB.uid, 100).others) == ([min(others)], 2)
    assert set(store.preview(BOB.uid, 100, all_seen=True).gone) == {min(others), *kept[:2]}
    assert store.enforce() == kept[:2]
    assert {one.id for one in store.newest_first()} == {*others, pinned, *kept[2:]}
    assert store.enforce() == []
    with pytest.raises(NotFound, match="had to go for newer ones"):
        store.get(kept[0])


def test_a_user_whose_traces_are_all_pinned_is_told(store: Store) -> None:
    for _ in range(MOST):
        store.pin(add(store, ANN).id, True, limited=False)
    with pytest.raises(Exhausted, match=rf"has {MOST} traces, all pinned, and {MOST} of one user .*profctl unpin"):
        add(store, ANN)
    assert "all pinned" in store.preview(ANN.uid, 100).refusal


def test_root_and_whoever_runs_the_daemon_have_no_such_limit(store: Store) -> None:
    for uid in {0, os.geteuid()}:
        caller = Caller(uid, uid, "runs", uid == 0, 1)
        for _ in range(MOST + 1):
            add(store, caller)
    assert store.enforce() == []


def test_a_prefix_of_very_many_is_counted_so_far(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.questions.reading._CANDIDATES_MAX", 5)
    for number in range(8):
        put(catalog, number, ANN)
    with pytest.raises(BadInput, match="beginning of more than 5 traces"):
        library_of(catalog)._resolve(ANN, "06v")
