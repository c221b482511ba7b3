"""Who pays when the store is full: whoever has stored the most, never who stays below an equal share."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.disk.eviction import Evictable, victims
from profd.errors import BadInput, Exhausted
from profd.limits import PINS_PER_UID_MAX
from profd.questions.library import Library
from profd.store.store import Store, StoreLimits

from tests.unit.profd.store.stored import ANN, BOB, ROOT, add, run_job, whole_traces


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    yield opened
    opened.close()


@pytest.fixture
def library(store):
    return Library(store, run_job)


def test_the_one_who_stored_most_loses_their_oldest():
    oldest_first = [Evictable("b1", 2, 10), Evictable("a1", 1, 10), Evictable("a2", 1, 10), Evictable("a3", 1, 10)]
    assert [trace.id for trace in victims(oldest_first, 40)] == []
    assert [trace.id for trace in victims(oldest_first, 39)] == ["a1"]
    assert [trace.id for trace in victims(oldest_first, 20)] == ["a1", "a2"]
    assert [trace.id for trace in victims(oldest_first, 10)] == ["a1", "a2", "b1"]


def test_pins_stay_and_count_against_their_owner():
    oldest_first = [
        Evictable("b1", 2, 10),
        Evictable("b2", 2, 10),
        Evictable("a1", 1, 20, pinned=True),
        Evictable("a2", 1, 1),
    ]
    assert [trace.id for trace in victims(oldest_first, 40)] == ["a2"]
    assert [trace.id for trace in victims(oldest_first, 0)] == ["a2", "b1", "b2"]


def traces(pinned):
    return st.lists(st.builds(Evictable, st.uuids().map(str), st.integers(0, 3), st.integers(0, 50), pinned))


@given(st.one_of(traces(st.just(False)), traces(st.booleans())), st.integers(0, 400))
def test_property_who_is_below_an_equal_share_loses_nothing(oldest_first, limit):
    gone = victims(oldest_first, limit)
    left = [trace for trace in oldest_first if trace not in gone]
    assert not any(trace.pinned for trace in gone)
    assert sum(trace.bytes for trace in left) <= limit or all(trace.pinned for trace in left)
    pinned = sum(trace.bytes for trace in oldest_first if trace.pinned)
    users = len({trace.uid for trace in oldest_first}) or 1
    used = Counter()
    for trace in oldest_first:
        used[trace.uid] += trace.bytes
    if not pinned:
        assert all(used[trace.uid] * users >= limit for trace in gone)
    for uid in used:
        theirs = [trace for trace in oldest_first if trace.uid == uid and not trace.pinned]
        lost = [trace for trace in theirs if trace in gone]
        assert theirs[: len(lost)] == lost


def test_the_store_evicts_so_and_tells(store):
    told = []
    store.on_evicted = told.append
    mine = [add(store, BOB, created_ns=1), *(add(store, ANN, created_ns=age) for age in (2, 3, 4))]
    size = mine[0].bytes
    store.limits = StoreLimits(bytes=size * 2, free_share_min=0.0, share=1.0)
    assert store.enforce() == [mine[1].id, mine[2].id]
    assert [(trace.uid, trace.id) for trace in told] == [(ANN.uid, mine[1].id), (ANN.uid, mine[2].id)]
    assert set(whole_traces(store)) == {mine[0].id, mine[3].id}


def test_what_would_go_at_once_is_not_stored(store):
    """Who is told that a trace is stored finds it; the others' share is not taken for it."""
    large = add(store, ANN, rows=5000)
    store.delete(large.id)
    others = [add(store, BOB).id, add(store, BOB).id]
    store.limits = StoreLimits(bytes=large.bytes + 1, free_share_min=0.0, share=1.0)
    with pytest.raises(Exhausted, match="2 users share the"):
        add(store, ANN, rows=5000)
    assert set(whole_traces(store)) == set(others)
    assert store.enforce() == []


async def test_pins_are_bounded_by_bytes(store, library):
    first, second, third = add(store, ANN), add(store, ANN), add(store, BOB)
    store.limits = StoreLimits(bytes=int(first.bytes * 5), free_share_min=0.0, share=1.0)  # 1.25 of it each
    await library.pin(ANN, first.id, True)
    await library.pin(ANN, first.id, True)  # again: nothing new
    with pytest.raises(Exhausted, match=f"ann has pinned 1 traces of {first.bytes} bytes, this one has"):
        await library.pin(ANN, second.id, True)
    await library.pin(BOB, third.id, True)
    with pytest.raises(Exhausted, match=f"All pinned traces hold {2 * first.bytes} bytes"):
        await library.pin(ROOT, second.id, True)
    await library.pin(BOB, third.id, False)
    assert (await library.pin(ROOT, second.id, True)).pinned


async def test_pins_are_bounded_by_number(store, library, monkeypatch):
    monkeypatch.setattr("profd.store.store.PINS_PER_UID_MAX", 2)
    assert PINS_PER_UID_MAX > 2
    ids = [add(store, ANN).id for _ in range(3)]
    for trace in ids[:2]:
        await library.pin(ANN, trace, True)
    with pytest.raises(Exhausted, match=r"has pinned 2 traces .* and 2 of"):
        await library.pin(ANN, ids[2], True)
    await library.pin(ANN, ids[0], False)
    await library.pin(ANN, ids[2], True)


async def test_a_dry_run_says_what_would_go_and_lets_it_be(store, library):
    """To a user only what is theirs; of others, how many."""
    theirs = [add(store, BOB, created_ns=age) for age in (1, 2, 3)]
    mine = add(store, ANN, created_ns=4)
    size = mine.bytes
    store.limits = StoreLimits(bytes=size * 4 + 10, free_share_min=0.0, share=1.0)
    preview, gone = await library.evictions(ANN, 0)
    assert (preview.gone, gone, preview.refusal) == ([], [], "")
    assert (preview.own, preview.share) == (size, (size * 4 + 10) // 2)
    preview, gone = await library.evictions(ANN, size)
    assert (preview.gone, preview.more, preview.others, gone) == ([], 0, 1, [])
    assert (await library.evictions(ROOT, size))[1] == [theirs[0]]
    assert (await library.evictions(BOB, size))[1] == [theirs[0]]
    preview, _ = await library.evictions(ANN, size * 9)
    assert "may take" in preview.refusal
    with pytest.raises(BadInput, match="no -1 bytes"):
        await library.evictions(ANN, -1)
    assert len(list(whole_traces(store))) == 4
    assert store.statistics().evicted == 0
