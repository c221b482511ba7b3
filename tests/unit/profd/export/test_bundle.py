"""Bundles: what comes back is what went out, and what is no bundle is refused by name."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadTrace
from profd.events import Flows
from profd.importing.pipeline import store_trace
from profd.model.remembered import CALLS_KEPT, RememberedCall
from profd.model.resident import LOOKS_KEPT, ResidentLook
from profd.model.run_times import RUNS_KEPT, THREADS_KEPT, ThreadTimes
from profd.model.traits import Traits, of_older
from profd.segments import bundle
from profd.segments.meta import (
    Members,
    TraceMeta,
    decode_struct,
    encode_json,
    joined,
    members_of,
    read_members,
    read_meta,
)
from profd.segments.reader import TraceReader
from profd.store.handover import merged

from tests.support.importing import import_trace
from tests.unit.profd.export.exported import exported

TRACE = {
    "schemaVersion": 1,
    "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "outer", "pid": 7, "tid": 7, "ts": 100.5, "dur": 50, "args": {"External id": 1, "Input Dims": [[2]], "own": "kept", "deep": {"a": [1]}}},  # noqa: E501
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 112, "dur": 2, "args": {"correlation": 9}},  # noqa: E501
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": "stream 3", "ts": 140, "dur": 30, "args": {"correlation": 9, "device": 0, "stream": 3}},  # noqa: E501
        {"ph": "B", "cat": "x", "name": "open", "pid": 7, "tid": 7, "ts": 145},
        {"ph": "C", "name": "memory", "pid": 7, "tid": 7, "ts": 150, "args": {"used": 17}},
        {"ph": "s", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 7, "ts": 100.5},
        {"ph": "f", "id": 1, "cat": "fwdbwd", "name": "fwdbwd", "pid": 7, "tid": 7, "ts": 112, "bp": "e"},
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "name": "broken", "pid": 7, "tid": 7, "ts": "?", "dur": 1},
    ],
    "traceName": "x.json",
}  # fmt: skip


def import_bundle(data: bytes, directory: Path) -> dict[str, Any]:
    directory.mkdir(parents=True)
    fd = os.memfd_create("bundle", os.MFD_CLOEXEC)
    with os.fdopen(fd, "r+b") as file:
        file.write(data)
        file.flush()
        files = [{"format": "", "label": "x.profd", "fd": 0}]
        arguments = {"files": files, "staging": str(directory), "meta": {"trace": "t2", "source": "import"}}
        return store_trace(arguments, [fd], lambda what, share: None)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "t.json").write_text(json.dumps(TRACE))
    said: dict[str, Any] = {"title": "train.py", "host": "node17", "rank": 3, "pid": 42, "clock_error_ns": 250}
    import_trace(folder / "t.json", folder / "t", **said)
    return folder / "t"


@pytest.fixture(scope="module")
def packed(trace: Path) -> bytes:
    return exported(trace, "bundle")[1]


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def archive(contents: dict[str, bytes], edit: Callable[[tarfile.TarInfo], None] = lambda info: None) -> bytes:
    """A tar as we write it, whatever is in it; the manifest is made right unless it is given."""
    out = io.BytesIO()
    stated = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
        if name != bundle.MANIFEST
    }
    manifest = {bundle.MANIFEST: json.dumps({"files": stated}).encode()}
    for name, data in {**contents, **({} if bundle.MANIFEST in contents else manifest)}.items():
        info = tarfile.TarInfo(name)
        info.size = len(data)
        edit(info)
        out.write(info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512))
    return out.getvalue() + bytes(1024)


def changed_meta(packed: bytes, **changes: Any) -> bytes:
    contents = members(packed)
    del contents[bundle.MANIFEST]
    meta = json.loads(contents["meta.json"])
    contents["meta.json"] = json.dumps(meta | changes).encode()
    return archive(contents)


def test_any_tar_lists_it(packed: bytes) -> None:
    found = members(packed)
    assert [*found] == ["profd-bundle", "meta.json", "segment-00000.parquet", "flows.parquet", "MANIFEST.json"]
    stated = json.loads(found["MANIFEST.json"])["files"]
    for name, entry in stated.items():
        assert entry == {"bytes": len(found[name]), "sha256": hashlib.sha256(found[name]).hexdigest()}


def test_nothing_is_lost(trace: Path, packed: bytes, tmp_path: Path) -> None:
    result = import_bundle(packed, tmp_path / "back")
    before, after = TraceReader(trace), TraceReader(tmp_path / "back")
    one, two = before.read(), after.read()
    assert one.columns.keys() == two.columns.keys()
    for name, values in one.columns.items():
        assert np.array_equal(values, two.columns[name], equal_nan=values.dtype.kind == "f"), name
    for key, arg in one.args.items():
        assert np.array_equal(arg.values, two.args[key].values)
        assert np.array_equal(arg.rows, two.args[key].rows)
    flows, again = before.flows(), after.flows()
    for name in Flows.__dataclass_fields__:
        assert np.array_equal(getattr(flows, name), getattr(again, name)), name
    assert before.tracks == after.tracks
    assert exported(trace, "chrome") == exported(tmp_path / "back", "chrome")
    meta, back = before.meta, after.meta
    for name in ("clock_error_ns", "title", "host", "rank", "pid", "source"):
        assert getattr(meta, name) == getattr(back, name), name
    for name in ("lost", "anomalies", "warnings", "top_level", "args"):
        assert getattr(meta, name) == getattr(back, name), name
    assert result["lost"] == [{"stage": "decode", "reason": "bad_time", "count": 1}]
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == sorted(path.name for path in trace.iterdir())
    assert exported(tmp_path / "back", "bundle")[0] == 5


def described(meta: TraceMeta) -> Members:
    return members_of(encode_json(meta), "it")


def believed(written: Members, meta: TraceMeta) -> TraceMeta:
    """What the store makes of the word of a worker."""
    return decode_struct(joined(merged(written, meta)), TraceMeta)


def test_no_list_has_more_losses_than_there_are_kinds(packed: bytes, tmp_path: Path) -> None:
    claimed = [{"stage": "decode", "reason": f"r{number}", "count": 1} for number in range(1000)]
    import_bundle(changed_meta(packed, lost=claimed), tmp_path / "back")
    assert len(read_meta(tmp_path / "back").lost) <= 64 + 1


def test_its_own_claims_are_an_imports_only(packed: bytes, tmp_path: Path) -> None:
    import_bundle(packed, tmp_path / "back")
    written = read_members(tmp_path / "back")
    mine = believed(written, TraceMeta(owner="bob", owner_uid=7, source="import", title="x.profd", host="here"))
    assert (mine.title, mine.host, mine.rank, mine.owner, mine.owner_uid) == ("train.py", "node17", 3, "bob", 7)
    captured = believed(written, TraceMeta(owner="bob", source="kineto", title="job", host="here"))
    assert (captured.title, captured.host, captured.rank, captured.source) == ("job", "here", None, "kineto")


def test_run_times_come_along_within_bounds(packed: bytes, tmp_path: Path) -> None:
    claimed = {
        "lasted_ns": 1 << 70,
        "idle": -4,
        "idle_ids": [[-1, 1 << 80]] * 999,
        "threads": [{"id": 7, "name": "a\x1b[2J", "lasted_ns": 5, "ran_ns": -3, "queued_ns": 1 << 70}] * 99,
        "names": {"7": "b\x1b" + "n" * 5000} | {f"x{number}": "c" for number in range(2000)},
    }
    import_bundle(changed_meta(packed, run_times=claimed), tmp_path / "back")
    times = believed(read_members(tmp_path / "back"), TraceMeta(source="import")).run_times
    most = (1 << 62) - 1
    assert (times.lasted_ns, times.idle, times.idle_ids) == (most, 0, [(0, most)] * RUNS_KEPT)
    assert (len(times.names), times.names["7"]) == (1000, "b\N{REPLACEMENT CHARACTER}" + "n" * 62)
    assert times.threads == [ThreadTimes(7, "a\N{REPLACEMENT CHARACTER}[2J", 5, 0, most)] * THREADS_KEPT


@pytest.mark.parametrize(
    ("claimed", "kept"), [("rg", "rg"), ("r", "--"), ("r\u0661", "--")], ids=["whole", "short", "odd"]
)
def test_looks_at_threads_come_along_in_order(claimed: str, kept: str, packed: bytes, tmp_path: Path) -> None:
    thread = {"id": 7, "name": "a", "lasted_ns": 5, "ran_ns": 3, "queued_ns": 0, "states": claimed}
    run_times = {"lasted_ns": 5, "looked_ns": [9, -1], "threads": [thread]}
    import_bundle(changed_meta(packed, run_times=run_times), tmp_path / "back")
    times = believed(read_members(tmp_path / "back"), TraceMeta(source="import")).run_times
    assert (times.looked_ns, times.threads[0].states) == ([0, 9], kept)


def test_memory_comes_along_within_bounds(packed: bytes, tmp_path: Path) -> None:
    claimed = {"looks": [{"at_ns": 9 - n, "total_bytes": 1 << 70, "own_bytes": -3} for n in range(999)]}
    import_bundle(changed_meta(packed, resident=claimed), tmp_path / "back")
    resident = believed(read_members(tmp_path / "back"), TraceMeta(source="import")).resident
    assert len(resident.looks) == LOOKS_KEPT
    assert resident.looks[-1] == ResidentLook(9, (1 << 62) - 1, 0)
    assert resident.lasted_ns == 9


def test_remembered_collectives_come_along_within_bounds(packed: bytes, tmp_path: Path) -> None:
    call = {"group": "0\n", "sequence": -4, "operation": "all_reduce", "elements": 1 << 70, "created_ns": 9}
    claimed = {"calls": [{**call, "created_ns": CALLS_KEPT - n} for n in range(CALLS_KEPT + 9)]}
    import_bundle(changed_meta(packed, remembered=claimed), tmp_path / "back")
    calls = believed(read_members(tmp_path / "back"), TraceMeta(source="import")).remembered.calls
    assert [one.created_ns for one in calls] == list(range(1, CALLS_KEPT + 1))
    assert calls[0] == RememberedCall("0\ufffd", 0, "all_reduce", (1 << 62) - 1, 1)


@pytest.mark.parametrize(("source", "kept"), [("sdk", "sdk"), ("pyspy", "pyspy"), ("nsys", "import")])
def test_what_the_trace_is_like_comes_along_whatever_recorded_it(source: str, kept: str) -> None:
    mine = believed(described(TraceMeta(source=source, traits=Traits(steps=False))), TraceMeta(source="import"))
    assert (mine.source, mine.known_traits) == (kept, Traits(steps=False))
    older = believed(described(TraceMeta(source=source)), TraceMeta(source="import"))
    assert older.known_traits == of_older(kept)


def test_a_part_of_a_trace(trace: Path, tmp_path: Path) -> None:
    count, data = exported(trace, "bundle", from_ns=30_000)
    assert import_bundle(data, tmp_path / "back")["events"] == count == 4
    reader = TraceReader(tmp_path / "back")
    table = reader.read(["name"])
    names = [reader.dictionaries["name"].values[code] for code in table.columns["name"].tolist()]
    assert names == ["outer", "gemm", "open", "memory"]
    assert reader.meta.gpu_events == 1


def test_redacted(trace: Path, tmp_path: Path) -> None:
    import_bundle(exported(trace, "bundle", redact=["values", "paths", "names"])[1], tmp_path / "back")
    text = exported(tmp_path / "back", "chrome")[1].decode()
    assert "kept" not in text
    assert "x.json" not in text
    meta = read_meta(tmp_path / "back")
    assert (meta.title, meta.host, meta.events) == ("", "", 5)


def refused(data: bytes, tmp_path: Path) -> str:
    target = tmp_path / "refused"
    with pytest.raises(BadTrace) as caught:
        import_bundle(data, target)
    assert not [path for path in target.rglob("*") if path.is_dir()]  # nothing of it is left
    assert not list(tmp_path.glob("escaped*"))
    return str(caught.value)


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "x/y", "segment-1.parquet", "segment-00000.parquet.so"])
def test_names_that_no_trace_has(packed: bytes, tmp_path: Path, name: str) -> None:
    contents = members(packed)
    del contents[bundle.MANIFEST]
    assert "no file of a trace" in refused(archive({**contents, name: b"x"}), tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"x", b"L"])  # noqa: E501  # fmt: skip
def test_members_that_are_no_files(packed: bytes, tmp_path: Path, kind: bytes) -> None:
    def edit(info: tarfile.TarInfo) -> None:
        if info.name == "flows.parquet":
            info.type = kind
            info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""

    contents = members(packed)
    del contents[bundle.MANIFEST]
    assert "no plain file" in refused(archive(contents, edit), tmp_path)


def test_members_that_come_twice_or_claim_too_much(packed: bytes, tmp_path: Path) -> None:
    contents = members(packed)
    first = {"profd-bundle": contents["profd-bundle"]}
    twice = archive(first)[: -2048 - 512] + archive({"meta.json": b"{}", "profd-bundle": b"1"})
    assert "damaged" in refused(twice, tmp_path)

    def edit(info: tarfile.TarInfo) -> None:
        info.size = 1 << 32 if info.name == "meta.json" else info.size

    assert "too many" in refused(archive({**first, "meta.json": b"{}"}, edit), tmp_path / "b")


def test_cut_or_changed(packed: bytes, tmp_path: Path) -> None:
    for number, cut in enumerate((1500, len(packed) // 2, len(packed) - 2048)):
        assert "damaged" in refused(packed[:cut], tmp_path / str(number))
    at = packed.index(b'"python"')
    assert "not those that were packed" in refused(packed[:at] + b'"PYTHON"' + packed[at + 8 :], tmp_path / "x")


@pytest.mark.parametrize("name", ["segment-00000.parquet", "flows.parquet", "meta.json"])
def test_no_error_names_the_directory_that_it_is_read_in(packed: bytes, tmp_path: Path, name: str) -> None:
    said = refused(archive({**members_without_manifest(packed), name: b"PAR1 is all there is"}), tmp_path)
    assert said.startswith(f"bundle/{name} is damaged")
    assert "exported again" in said
    assert str(tmp_path) not in said


def members_without_manifest(packed: bytes) -> dict[str, bytes]:
    return {name: data for name, data in members(packed).items() if name != bundle.MANIFEST}


def test_a_newer_version(tmp_path: Path) -> None:
    assert "upgrade profd" in refused(archive({"profd-bundle": b"2\n"}), tmp_path)


TRACKS = {"processes": [{"id": 7}], "threads": [{"id": 7, "process": 0}]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tracks": TRACKS}, "track that there is not"),
        ({"tracks": {"processes": [], "threads": [{"id": 7, "process": 9}]}}, "no process"),
        ({"tracks": {"processes": [{"id": [7]}], "threads": []}}, "id that is none"),
        ({"tracks": {"processes": [{"id": 7, "metadata": "x"}], "threads": []}}, "no records"),
        ({"events": 6}, "instead of 6"),
        ({"flows": 3}, "damaged"),
        ({"late": 3}, "missing"),
        ({"segments": [{"file": "../../x", "first_row": 0, "rows": 5, "start_ns": 0, "end_ns": 1}]}, "next segment"),
        ({"segments": [{"file": "segment-00000.parquet", "first_row": 0, "rows": 1 << 40, "start_ns": 0, "end_ns": 1}]}, "rows"),  # noqa: E501
        ({"segments": [{"file": "segment-00000.parquet", "first_row": 5, "rows": 5, "start_ns": 0, "end_ns": 1}]}, "next segment"),  # noqa: E501
        ({"format": 99}, "upgrade"),
        ({"pid": "x"}, "damaged"),
    ],
)  # fmt: skip
def test_contents_that_do_not_fit_together(packed: bytes, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    assert words in refused(changed_meta(packed, **changes), tmp_path)


def test_claims_are_cleaned(packed: bytes, tmp_path: Path) -> None:
    lost = [{"stage": "a b\n", "reason": "x" * 999, "count": -5}]
    import_bundle(changed_meta(packed, title="\x1b[31m", pid=1 << 40, source="../x", lost=lost), tmp_path / "back")
    meta = read_meta(tmp_path / "back")
    assert (meta.title, meta.pid, meta.source) == ("\N{REPLACEMENT CHARACTER}[31m", None, "import")
    assert [(loss.stage, loss.reason, loss.count) for loss in meta.lost] == [("other", "other", 0)]


@given(at=st.integers(0, 1 << 20), value=st.integers(0, 255))
def test_one_byte_changed(packed: bytes, tmp_path_factory: pytest.TempPathFactory, at: int, value: int) -> None:
    data = bytearray(packed)
    data[at % len(data)] = value
    folder = tmp_path_factory.mktemp("byte")
    with contextlib.suppress(BadTrace):
        assert import_bundle(bytes(data), folder / "t")["events"] == 5  # in padding, or the same byte
