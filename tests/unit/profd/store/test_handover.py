"""Workers of another uid may write what is staged and read what is stored, and nothing else."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from profd.store.store import Store, StoreLimits
from profd.workers import identity

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


def test_workers_read_traces_and_write_staging_only(root, workers):
    store = Store(root, LIMITS)
    trace = store.directory(add(store).id)
    assert may("cat", trace / "meta.json")
    assert may("cat", trace / "segment-00000.parquet")
    assert not may("touch", trace / "segment-00000.parquet")
    assert not may("touch", trace / "new")
    assert not may("ls", store.traces)
    assert not may("cat", root / "catalog.sqlite")
    assert not may("ls", root / "records")
    staging = store.staging()
    assert may("touch", staging / "segment-00000.parquet")
    store.discard(staging)
    assert not staging.exists()
    store.close()


def test_traces_of_another_time_are_handed_over(root):
    before = identity.current()
    store = Store(root, LIMITS)
    trace = store.directory(add(store).id)
    store.close()
    assert not may("cat", trace / "meta.json")
    try:
        identity.use(identity.WorkerIdentity(NOBODY, NOBODY, "nobody"))
        Store(root, LIMITS).close()
        assert may("cat", trace / "meta.json")
    finally:
        identity.use(before)


def test_strangers_read_nothing(root, workers):
    store = Store(root, LIMITS)
    trace = store.directory(add(store).id)
    done = subprocess.run(["cat", trace / "meta.json"], user=12345, group=12345, extra_groups=[], capture_output=True)
    assert done.returncode != 0
    store.close()
