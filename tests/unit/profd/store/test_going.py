"""What would go, said by SQL, as the rules in Python say it; an answer names the first and counts the others."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.disk.eviction import Evictable, victims
from profd.questions.library import Library
from profd.store import going
from profd.store.catalog import Catalog, TraceRecord
from profd.store.going import Newcomer
from profd.store.store import Store, StoreLimits

from tests.unit.profd.store.stored import ANN, BOB, ROOT, add, run_job

TRACES = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(0, 50), st.booleans()), max_size=20
)  # uid, age, bytes, pinned


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    opened = Catalog(tmp_path_factory.mktemp("going") / "catalog.sqlite")
    yield opened
    opened.close()


@given(TRACES, st.integers(0, 5), st.integers(0, 50), st.integers(0, 400), st.integers(0, 20), st.booleans())
def test_property_sql_says_what_the_rules_say(catalog, traces, uid, size, limit, named, all_seen):
    for trace in catalog.ids():
        catalog.remove([trace])
    for number, (owner, age, length, pinned) in enumerate(traces):
        catalog.put(TraceRecord(id=f"t{number:02}", owner_uid=owner, created_ns=age, bytes=length, pinned=pinned))
    without = [trace.id for trace in catalog.held()][::7]
    held = [trace for trace in catalog.held() if trace.id not in without]
    expected = victims([*held, Evictable("", uid, size)], limit)
    seen = [trace.id for trace in expected if trace.id and (all_seen or trace.uid == uid)]
    with catalog.looking() as db:
        found = going.going(db, Newcomer(uid, size), limit, without=without, named=named, all_seen=all_seen)
        sums = going.sums(db, uid)
    assert found.named == seen[:named]
    assert found.itself == any(not trace.id for trace in expected)
    assert (found.seen, found.others) == (len(seen), len(expected) - found.itself - len(seen))
    everything = catalog.held()
    assert (sums.stored, sums.users) == (
        sum(one.bytes for one in everything),
        len({uid, *(one.uid for one in everything)}),
    )
    own = [one for one in everything if one.uid == uid]
    assert (sums.own, sums.own_pinned) == (sum(one.bytes for one in own), sum(one.bytes for one in own if one.pinned))


async def test_an_answer_names_the_first_and_counts_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr("profd.store.store.EVICTIONS_NAMED_MAX", 2)
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    try:
        mine = [add(store, ANN, created_ns=age) for age in range(1, 6)]
        add(store, BOB, created_ns=9)
        store.limits = StoreLimits(bytes=mine[0].bytes * 2, free_share_min=0.0, share=1.0)
        library = Library(store, run_job)
        for caller, others in ((ANN, 0), (ROOT, 0), (BOB, 4)):
            preview, gone = await library.evictions(caller, 0)
            counted = (2, 2, 0) if not others else (0, 0, 4)
            assert ((len(gone), preview.more, preview.others), preview.refusal) == (counted, "")
            assert [one.id for one in gone] == [one.id for one in mine[: len(gone)]]
        # AND one that went meanwhile is no error
        assert [one.id for one in store.these([mine[1].id, "x", mine[0].id])] == [mine[1].id, mine[0].id]
    finally:
        store.close()


def test_a_look_changes_nothing_and_keeps_nobody_waiting(catalog):
    catalog.put(TraceRecord(id="one", owner_uid=1, bytes=1))
    with catalog.looking() as db:
        rows = db.execute("SELECT id FROM traces")
        assert rows.fetchone()
        catalog.put(TraceRecord(id="two", owner_uid=1, bytes=1))
        assert catalog.ids() >= {"one", "two"}
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            db.execute("DELETE FROM traces")
