"""What captures leave behind becomes a trace; records of captures are durable."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from profd.capture.records import CaptureRecord, TargetRecord
from profd.disk.space import Space
from profd.errors import BadInput, DiskFull, NotFound
from profd.importing.recordings import Recordings
from profd.model.capture import Loss, Options, Phase, RawFile
from profd.model.resident import Resident, ResidentLook
from profd.model.run_times import RunTimes
from profd.model.traits import SAMPLED
from profd.store.captures import CaptureRecords
from profd.store.store import Store, StoreLimits
from profd.targets.process import ProcessId

from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.unit.profd.store.stored import run_job


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    yield opened
    opened.close()


def capture_of(target: TargetRecord) -> CaptureRecord:
    return CaptureRecord("c1", "r", "ann", 1001, 5, Options(duration_ns=7), targets=[target])


def target(**fields) -> TargetRecord:
    return TargetRecord("node7", 42, 99, 1001, "ann", "python train.py", source="kineto", **fields)


async def test_recording_becomes_a_trace(store, tmp_path):
    (tmp_path / "raw.json").write_text("{}")
    one = target(
        lost=[Loss("source", "dropped", 3)],
        warnings=["hm"],
        waterfall=[Phase("window", 7)],
        start_ns=1,
        end_ns=8,
        traits=SAMPLED,
        run_times=RunTimes(lasted_ns=7, idle=2),
        resident=Resident([ResidentLook(0, 2, 1)]),
    )
    recordings = Recordings(store, lambda uid: run_job)
    stored = await recordings.store(capture_of(one), one, [RawFile(str(tmp_path / "raw.json"), "chrome")])
    assert stored.events == 50
    assert stored.warnings == ["odd"]
    assert stored.lost == []
    assert stored.gpu_launches == 3
    assert [phase.name for phase in stored.waterfall] == ["decode", "store"]
    meta = store.meta(stored.trace)
    assert (meta.capture, meta.pid, meta.start_ticks, meta.owner, meta.host) == ("c1", 42, 99, "ann", "node7")
    assert meta.lost == one.lost
    assert meta.options["duration_ns"] == 7
    assert meta.traits == SAMPLED
    assert meta.run_times == RunTimes(lasted_ns=7, idle=2)
    assert meta.resident == Resident([ResidentLook(0, 2, 1)])
    assert [phase.name for phase in meta.waterfall] == ["window", "decode", "store"]
    found = recordings.find("c1", ProcessId(42, 99))
    assert found is not None
    assert (found.trace, found.lost) == (stored.trace, [])
    assert recordings.find("c1", ProcessId(42, 98)) is None
    assert (tmp_path / "raw.json").exists()


async def test_samples_are_left_out_once_the_worker_that_sorted_them_is_gone(store, tmp_path):
    """Its file has no name, and is there until it has ended: as long as a busy host takes for that."""
    free, asked = [1 << 30], []
    store.space = Space(tmp_path, 0.0, measure=lambda: (free.pop() if len(free) > 1 else free[0], 1 << 31))

    async def sort(job, args, fds=(), on_progress=None):
        asked.append([file["format"] for file in args["files"]])
        if len(fds) > 1:
            free.extend([0] * 5)
            raise DiskFull("the trace of this needs 1 more bytes")
        return await run_job(job, args, fds, on_progress)

    files = [RawFile(str(tmp_path / name), kind) for name, kind in (("chunks", "chunks"), ("samples", "pyspy"))]
    for file in files:
        Path(file.path).write_bytes(bytes(100_000))
    stored = await Recordings(store, lambda uid: sort).store(capture_of(target()), target(), files)
    assert asked == [["chunks", "pyspy"], ["chunks"]]
    assert any("samples were left out" in warning for warning in store.meta(stored.trace).warnings)


async def test_on_a_slow_disk_users_have_their_traces_stored_in_turn(store, tmp_path, monkeypatch):
    """GIVEN a user of whom many traces wait for the disk THEN another user's waits for one of them, not for all."""
    (tmp_path / "raw.json").write_text("{}")
    owners, decoded, go, adopt = [], [], threading.Event(), store.adopt

    def slow(staging, meta):
        owners.append(meta.owner_uid)
        assert go.wait(PATIENCE_SECONDS)
        return adopt(staging, meta)

    async def decode(*asked):
        decoded.append(asked)
        return await run_job(*asked)

    monkeypatch.setattr(store, "adopt", slow)
    one = target()
    raw = [RawFile(str(tmp_path / "raw.json"), "chrome")]

    def stored(uid):
        capture = replace(capture_of(one), owner_uid=uid)
        return asyncio.ensure_future(Recordings(store, lambda _: decode).store(capture, one, raw))

    asked = [stored(1001) for _ in range(6)]
    await eventually(lambda: owners and len(decoded) == len(asked))
    asked.append(stored(1002))
    await eventually(lambda: len(decoded) == len(asked))
    go.set()
    await asyncio.gather(*asked)
    assert owners.index(1002) < 3
    assert not list(store.traces.glob(".staging-*"))


@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "directory"])
async def test_what_is_no_raw_file_is_refused(store, tmp_path, kind):
    path = tmp_path / "raw"
    {
        "missing": lambda: None,
        "link": lambda: path.symlink_to("/etc/passwd"),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
    }[kind]()
    with pytest.raises(BadInput):
        await Recordings(store, lambda uid: run_job).store(
            capture_of(target()), target(), [RawFile(str(path), "chrome")]
        )
    assert store.newest_first() == []


def test_capture_records_come_back_oldest_first(tmp_path):
    records = CaptureRecords(tmp_path)
    for name, created in (("b", 1), ("a", 2), ("c", 0)):
        records.put(name, {"id": name, "created_ns": created})
    records.put("a", {"id": "a", "created_ns": 3, "x": "\ud800"})
    again = CaptureRecords(tmp_path)
    assert [record["id"] for record in again.all()] == ["c", "b", "a"]
    assert again.get("a")["x"] == "\ud800"
    again.remove("a")
    again.remove("a")
    with pytest.raises(NotFound):
        again.get("a")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_damaged_record_costs_itself_only(tmp_path, damage):
    records = CaptureRecords(tmp_path)
    records.put("good", {"created_ns": 1})
    (tmp_path / "records" / "captures" / "bad.json").write_bytes(damage)
    assert records.all() == [{"created_ns": 1}]
    with pytest.raises(BadInput, match="damaged"):
        records.get("bad")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a\0", "x" * 200, ".hidden"])
def test_names_of_records_are_never_paths(tmp_path, name):
    with pytest.raises(BadInput):
        CaptureRecords(tmp_path).put(name, {})
