"""Workers of another uid reach what is at their gate, and nothing else of the store."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from profd.errors import NotFound
from profd.kernel import identity
from profd.questions.jobs import DIRECTORIES
from profd.store.store import Store, StoreLimits
from profd.workers.gate import Gate, prepare

from tests.unit.profd.store.stored import add

NOBODY = 65534
LIMITS = StoreLimits(free_share_min=0.0)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="another uid takes root")


@pytest.fixture
def root():
    """Where another uid can get to, unlike pytest's own directories."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o711)
        yield Path(directory) / "state"


@pytest.fixture
def workers():
    before = identity.current()
    identity.use(identity.WorkerIdentity(NOBODY, NOBODY, "nobody"))
    yield
    identity.use(before)


def may(*command: str | Path) -> bool:
    """Whether a worker can run this command."""
    done = subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, cwd="/")
    return done.returncode == 0


def gate_in(root) -> Gate:
    prepare(root / "gates", identity.current())
    return Gate(root / "gates", identity.current(), DIRECTORIES)


def test_the_store_is_closed_to_workers(root, workers):
    store = Store(root, LIMITS)
    gate = gate_in(root)
    trace = store.directory(add(store).id)
    staging = store.staging()
    assert not may("cat", trace / "meta.json")
    assert not may("touch", staging / "segment-00000.parquet")
    assert not may("cat", root / "catalog.sqlite")
    for folder in (store.traces, root, root / "records", root / "gates", gate.path):
        assert not may("ls", folder)
    store.close()


def test_a_trace_is_at_the_gate_while_its_job_runs(root, workers):
    store = Store(root, LIMITS)
    gate = gate_in(root)
    trace = store.directory(add(store).id)
    admitted = gate.admit({"trace_dir": str(trace), "limit": 1})
    there = Path(admitted["trace_dir"])
    assert admitted["limit"] == 1
    assert may("cat", there / "meta.json", there / "segment-00000.parquet")
    assert not may("touch", there / "segment-00000.parquet")
    assert not may("touch", there / "new")
    gate.dismiss(done=True)
    assert not [*there.iterdir()]
    assert (trace / "meta.json").stat().st_nlink == 1
    with pytest.raises(NotFound, match="just been removed"):
        gate.admit({"trace_dir": str(store.directory("gone"))})
    store.close()


def test_staging_is_at_the_gate_while_its_job_runs(root, workers):
    store = Store(root, LIMITS)
    gate = gate_in(root)
    staging = store.staging()
    there = Path(gate.admit({"staging": str(staging)})["staging"])
    assert may("touch", there / "segment-00000.parquet", there.parent / "tmp" / "left")
    assert not [*staging.iterdir()]
    gate.dismiss(done=True)
    assert [(path.name, path.lstat().st_nlink) for path in staging.iterdir()] == [("segment-00000.parquet", 1)]
    assert not may("touch", staging / "more")
    assert not [*(gate.path / "out" / "tmp").iterdir()]
    store.discard(staging)
    assert not staging.exists()
    store.close()


def test_a_gate_that_was_left_full_is_cleared_for_the_next_job(root, workers):
    store = Store(root, LIMITS)
    gate = gate_in(root)
    staging = store.staging()
    trace = store.directory(add(store).id)
    gate.admit({"staging": str(staging), "trace_dir": str(trace), "other_dir": str(trace)})
    gate.admit({})
    assert not [*staging.iterdir()]
    assert not [path for path in (gate.path / "in").rglob("*") if not path.is_dir()]
    gate.remove()
    prepare(root / "gates", identity.current())
    assert not [*(root / "gates").iterdir()]
    store.close()


def test_traces_of_another_time_are_handed_over(root):
    before = identity.current()
    store = Store(root, LIMITS)
    trace = store.directory(add(store).id)
    store.close()
    try:
        identity.use(identity.WorkerIdentity(NOBODY, NOBODY, "nobody"))
        gate = gate_in(root)
        assert not may("cat", Path(gate.admit({"trace_dir": str(trace)})["trace_dir"]) / "meta.json")
        gate.dismiss(done=True)
        Store(root, LIMITS).close()
        assert may("cat", Path(gate.admit({"trace_dir": str(trace)})["trace_dir"]) / "meta.json")
    finally:
        identity.use(before)


def test_a_program_that_is_started_meanwhile_keeps_no_trace_out(root, workers, monkeypatch):
    """It has a copy of each descriptor of the daemon until it executes."""
    copies, written = [], os.fsync

    def fsync(fd: int) -> None:
        copies.append(os.dup(fd))
        written(fd)

    store = Store(root, LIMITS)
    gate = gate_in(root)
    monkeypatch.setattr(os, "fsync", fsync)
    trace = store.directory(add(store).id)
    assert copies
    for copy in copies:
        os.close(copy)
    assert may("cat", Path(gate.admit({"trace_dir": str(trace)})["trace_dir"]) / "meta.json")
    gate.dismiss(done=True)
    store.close()


def test_strangers_read_nothing(root, workers):
    store = Store(root, LIMITS)
    trace = store.directory(add(store).id)
    done = subprocess.run(["cat", trace / "meta.json"], user=12345, group=12345, extra_groups=[], capture_output=True)
    assert done.returncode != 0
    store.close()
