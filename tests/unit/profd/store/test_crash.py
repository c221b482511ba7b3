"""kill -9 at every step of the store's work: what was reported holds, what was not is whole or absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from profd.store.store import Store, StoreLimits

from tests.unit.profd.store import crashing
from tests.unit.profd.store.stored import add, whole_traces, write_trace

LIMITS = StoreLimits(free_share_min=0.0)
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """(base directory, the three old ids, what each fork told)."""
    base = tmp_path_factory.mktemp("crashes")
    store = Store(base / "base", LIMITS)
    for number in range(3):
        add(store, rows=5, created_ns=number + 1)
    old = sorted(record.id for record in store.newest_first())
    store.pin(old[0], True)
    store.close()
    (base / "fresh").mkdir()
    write_trace(base / "fresh", rows=5)
    done = subprocess.run(
        [sys.executable, crashing.__file__, base], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert runs[-1]["status"] == 0, done.stderr
    return base, old, runs


def test_the_fuse_reaches_every_part_of_the_work(crashes):
    _, _, runs = crashes
    seen = {run["told"][-1] if run["told"] else "" for run in runs}
    assert seen >= {"", "storing", "stored", "pinned", "deleting", "evicting", "evicted"}
    assert len(runs) > 50


def test_what_was_reported_holds_after_a_kill(crashes):
    base, (pinned, deleted, evicted), runs = crashes
    for run in runs:
        told, where = set(run["told"]), f"killed at step {run['n']} after {run['told']}"
        store = Store(base / str(run["n"]), LIMITS)
        there = set(whole_traces(store))
        assert {path.name for path in store.traces.iterdir()} == there, where
        assert pinned in there, where
        assert (crashing.NEW in there) or "stored" not in told, where
        assert (crashing.NEW not in there) or "storing" in told, where
        assert (deleted in there) == ("deleted" not in told) or "deleting" in told, where
        assert (evicted in there) == ("evicted" not in told) or "evicting" in told, where
        assert not ("deleted" in told and deleted in there), where
        assert not ("evicted" in told and evicted in there), where
        assert store.get(crashing.NEW).pinned if "pinned" in told else True, where
        assert list(store.get(pinned).readers) == ["nobody"] if "shared" in told else True, where
        store.close()
