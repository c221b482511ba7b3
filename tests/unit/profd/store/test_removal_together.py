"""Traces that go: on a slow disk each sync takes a second, and nobody else waits for one of each trace."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from profd.disk import files
from profd.errors import Exhausted
from profd.store import records as records_module
from profd.store import store as store_module
from profd.store.store import Store, StoreLimits

from tests.unit.profd.store.stored import BOB, add, whole_traces

UNLIMITED = StoreLimits(free_share_min=0.0, share=1.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "state", UNLIMITED)
    yield opened
    opened.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was synced, in this order."""
    done: list[Path] = []

    def sync(path: Path) -> None:
        done.append(path)
        files.sync(path)

    for module in (store_module, records_module):
        monkeypatch.setattr(module, "sync", sync)
    return done


def test_many_traces_go_by_one_sync(store: Store, synced: list[Path]) -> None:
    for _ in range(6):
        add(store)
    kept = add(store, BOB)
    store.pin(kept.id, True)
    store.limits = StoreLimits(bytes=kept.bytes, free_share_min=0.0, share=1.0)
    synced.clear()
    assert len(store.enforce()) == 6
    assert synced == [store.traces]
    assert list(whole_traces(store)) == [kept.id]
    assert not [path for path in store.traces.iterdir() if path.name.startswith(".")]


def test_their_pins_and_shares_go_by_one_more(store: Store, synced: list[Path]) -> None:
    traces = [add(store) for _ in range(4)]
    for one in traces:
        store.share(one.id, ["*"])
    store.limits = StoreLimits(bytes=0, free_share_min=0.0, share=1.0)
    synced.clear()
    assert len(store.enforce()) == 4
    assert synced == [store.traces, store.root / "records" / "traces"]
    assert not list((store.root / "records" / "traces").iterdir())


def test_a_large_number_goes_in_pieces(store: Store, monkeypatch: pytest.MonkeyPatch, synced: list[Path]) -> None:
    """Lists wait for the catalog while rows of one piece go."""
    monkeypatch.setattr(store_module, "REMOVED_TOGETHER", 2)
    for _ in range(5):
        add(store)
    store.limits = StoreLimits(bytes=0, free_share_min=0.0, share=1.0)
    synced.clear()
    assert len(store.enforce()) == 5
    assert synced == [store.traces] * 3


def test_others_pin_while_the_files_of_a_trace_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a large trace that is removed from a slow disk THEN another user's pin does not wait for its files."""
    large, other = add(store), add(store, BOB)
    pinned: list[bool] = []
    remove: Callable[..., Any] = shutil.rmtree

    with ThreadPoolExecutor(1) as threads:

        def slowly(path: Path, **options: Any) -> None:
            pinned.append(threads.submit(store.pin, other.id, True).result(20).pinned)
            remove(path, **options)

        monkeypatch.setattr(shutil, "rmtree", slowly)
        store.delete(large.id)
    assert pinned == [True]


def test_where_the_disk_refuses_one_all_of_them_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = [add(store, created_ns=age) for age in range(1, 4)]
    store.limits = StoreLimits(bytes=0, free_share_min=0.0, share=1.0)
    renamed: list[Path] = []

    def rename(path: Path, to: Path) -> None:
        if path == store.directory(traces[2].id):
            raise OSError(5, "Input/output error")
        renamed.append(path)
        files.rename(path, to)

    monkeypatch.setattr(store_module, "rename", rename)
    with pytest.raises(Exhausted):
        store.enforce()
    assert len(renamed) == 4  # two there, and back
    assert sorted(whole_traces(store)) == sorted(one.id for one in traces)
