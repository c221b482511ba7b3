"""`store upgrade`: traces of format 1 become traces of now, and nothing is lost wherever that ends."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profd.errors import Exhausted, InUse, Unavailable
from profd.segments.meta import FORMAT, read_meta
from profd.segments.reader import TraceReader
from profd.segments.rewrite import rewritten
from profd.store import upgrade as upgrading
from profd.store.store import Store, StoreLimits
from profd.store.upgrade import upgrade

from tests.unit.profd.store import crashing
from tests.unit.profd.store.stored import ANN, add
from tests.unit.profd.store.tables import plain

V1 = Path(__file__).parents[3] / "data" / "store-v1"
EXPECTED = json.loads((V1 / "rows.json").read_text())
OLD = ("1aaaaaaaaaaaa", "1bbbbbbbbbbbb")
LIMITS = StoreLimits(free_share_min=0.0)
ROOT = Path(__file__).parents[4]


def put(root: Path, trace: str) -> Path:
    """A trace of format 1 in a store that nobody has open."""
    folder = root / "traces" / trace
    shutil.copytree(V1 / "trace", folder)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "trace": trace, "owner_uid": ANN.uid, "title": "kept"}))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    for trace in OLD:
        put(tmp_path, trace)
    store = Store(tmp_path, LIMITS)
    yield store
    store.close()


def test_they_are_read_as_before_and_by_every_engine(store: Store) -> None:
    fresh = add(store)
    before = TraceReader(store.directory(OLD[0]))
    flows, rows, tracks = before.flows(), plain(before.read()), before.tracks
    assert rows == EXPECTED
    done = upgrade(store, rewritten)
    assert (done.anew, done.others, done.damaged) == ([*OLD], 1, [])
    reader = TraceReader(store.directory(OLD[0]))
    assert (reader.meta.format, reader.meta.late, reader.meta.title) == (FORMAT, 0, "kept")
    assert plain(reader.read()) == EXPECTED
    assert (reader.tracks, reader.meta.args) == (tracks, before.meta.args)
    after = reader.flows()
    assert np.array_equal(after.time, flows.time)
    assert [reader.dictionaries["flow_id"].values[code] for code in after.id] == ["7", "x\ud800", "7"]
    assert sorted(path.name for path in reader.directory.iterdir()) == [
        *("flows.parquet", "meta.json"),
        *(info.file for info in reader.meta.segments),
    ]
    assert store.get(OLD[0]).bytes == reader.meta.bytes
    assert {path.name for path in store.traces.iterdir()} == {*OLD, fresh.id}
    assert upgrade(store, rewritten).others == 3


def test_a_damaged_one_is_named_and_stays(store: Store) -> None:
    segment = next(store.directory(OLD[0]).glob("segment-*"))
    segment.write_bytes(segment.read_bytes()[:100])
    (store.directory(OLD[1]) / "meta.json").write_text("{")
    done = upgrade(store, rewritten)
    assert (done.anew, done.others) == ([], 0)
    assert [sentence.startswith(f"trace {trace}: ") for sentence, trace in zip(done.damaged, OLD, strict=True)]
    assert segment.stat().st_size == 100
    assert {path.name for path in store.traces.iterdir()} == {*OLD}


def test_readers_end_first(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no lock of the store, and would find files of two formats."""
    store.unlock()
    other = Store(store.root, LIMITS)
    with pytest.raises(InUse, match="Somebody reads traces of"):
        upgrade(other, rewritten, wait_seconds=0)
    assert read_meta(store.directory(OLD[0])).format == 1
    assert plain(TraceReader(store.directory(OLD[0])).read()) == EXPECTED
    store.close()
    assert upgrade(other, rewritten, wait_seconds=0).anew == [*OLD]
    other.close()


def test_a_disk_that_refuses_leaves_the_old_one(store: Store) -> None:
    def refuses(trace: Path, folder: Path) -> Any:
        rewritten(trace, folder)
        raise Exhausted("no space")

    with pytest.raises(Exhausted):
        upgrade(store, refuses)
    assert plain(TraceReader(store.directory(OLD[0])).read()) == EXPECTED
    assert {path.name for path in store.traces.iterdir()} == {*OLD}


def test_a_filesystem_that_cannot_exchange_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(path: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(upgrading, "exchange", cannot)
    with pytest.raises(Unavailable, match="cannot exchange two directories: export traces with `-f bundle`"):
        upgrade(store, rewritten)
    assert read_meta(store.directory(OLD[0])).format == 1


def test_killed_at_any_step_it_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    put(tmp_path / "base", OLD[0])
    Store(tmp_path / "base", LIMITS).close()
    done = subprocess.run(
        [sys.executable, crashing.__file__, tmp_path, "upgrade"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert runs[-1]["status"] == 0, done.stderr
    assert len(runs) > 20
    formats = []
    for run in runs:
        where = f"killed at step {run['n']}"
        there = tmp_path / str(run["n"]) / "traces" / OLD[0]
        formats.append(read_meta(there).format)
        assert plain(TraceReader(there).read()) == EXPECTED, where
        store = Store(tmp_path / str(run["n"]), LIMITS)
        assert [path.name for path in store.traces.iterdir()] == [OLD[0]], where
        upgrade(store, rewritten)
        reader = TraceReader(there)
        assert (reader.meta.format, plain(reader.read())) == (FORMAT, EXPECTED), where
        assert store.get(OLD[0]).bytes == reader.meta.bytes, where
        store.close()
    assert formats == sorted(formats)  # once it is the new one it stays so
    assert {*formats} == {1, FORMAT}


def test_names_of_two_directories_do_not_change_places(tmp_path: Path) -> None:
    from profd.disk.files import exchange

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with pytest.raises(ValueError, match="would leave its directory"):
        exchange(tmp_path / "a" / "file", tmp_path / "b" / "file")
    exchange(tmp_path / "a", tmp_path / "b")
    assert [(tmp_path / name / "file").read_text() for name in ("a", "b")] == ["b", "a"]
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "none")
