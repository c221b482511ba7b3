"""All traces of a capture in one file: on one axis, each with processes and ids of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadInput, Exhausted, ProfdError
from profd.events import Kind, Tracks
from profd.export.jobs import export_of_capture
from profd.export.perfetto_archive import _Spool
from profd.query.captured import Captured
from profd.questions.table import QUESTIONS

from tests.support.importing import import_trace
from tests.support.many_ranks import CAPTURE, ask, member, training
from tests.support.simulated_job import Plan, files
from tests.support.small_disk import small_disk
from tests.support.tables import Event
from tests.support.trace_processor import asked, needs_trace_processor
from tests.unit.profd.export.exported import exported

DAY_NS = 86_400 * 10**9
SLICES = """select p.name, p.pid, s.name, s.ts, s.dur from slice s join thread_track t on s.track_id = t.id
    join thread using (utid) join process p using (upid) order by s.ts, s.name"""
CLOCKS = "select str_value from metadata where name = 'cr-profd'"


def job(folder: Path, plan: Plan) -> list[Path]:
    """The stored traces of a simulated job, two ranks on each host."""
    found = []
    for rank, path in enumerate(files(folder, plan)):
        found.append(folder / f"stored{rank}")
        import_trace(path, found[-1], trace=f"t{rank}", capture=CAPTURE, host=f"node{rank // 2}", rank=rank)
    return found


def written(folder: Path, name: str, records: list[dict[str, Any]], **meta: Any) -> Path:
    """The stored trace of these records of a Chrome file."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"traceEvents": records}))
    import_trace(path, folder / name, **{"trace": name, "capture": CAPTURE, "host": "node0", **meta})
    return folder / name


def chrome(directories: list[Path], **args: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(exported(directories, "chrome", **args)[1])
    return found


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [record for record in trace["traceEvents"] if record["ph"] == "X"]


def names(trace: dict[str, Any]) -> dict[int, str]:
    """Of processes, by number."""
    said = [one for one in trace["traceEvents"] if one["ph"] == "M" and one["name"] == "process_name"]
    assert len({one["pid"] for one in said}) == len(said)
    return {one["pid"]: one["args"]["name"] for one in said}


def manifest_of(archive: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        held = {one.name: tar.extractfile(one) for one in tar.getmembers()}
        data = {name: file.read() for name, file in held.items() if file is not None}
    manifest: dict[str, Any] = json.loads(data.pop("perfetto_manifest.json"))["perfetto_manifest"]
    return manifest, data


@pytest.mark.parametrize("device", [False, True], ids=["gloo", "nccl"])
@pytest.mark.parametrize("apart_ns", [40_000_000, -3 * DAY_NS], ids=["40 ms", "days"])
@pytest.mark.parametrize("seed", [1, 2])
def test_clocks_that_are_apart(tmp_path: Path, device: bool, apart_ns: int, seed: int) -> None:
    """GIVEN clocks that differ by days WHEN merged THEN collectives overlap, and each rank is within its bound.

    No event is lost, and the bound is that of `ranks`.
    """
    stored = job(tmp_path, Plan(ranks=4, device=device, apart_ns=apart_ns, seed=seed))
    trace = chrome(stored)
    about = trace["profd"]
    for row in about["traces"]:
        assert abs(-row["moved_ns"] - row["rank"] * apart_ns) <= row["within_ns"] < 400_000
    assert about["clocks"] == ask("ranks", stored)["clocks"] | {"within_ns": about["clocks"]["within_ns"]}
    count = sum(one.events for one in Captured(stored).members)
    assert exported(stored, "chrome")[0] == exported(stored, "perfetto")[0] == len(spans(trace)) == count

    whose = names(trace)
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if device else "gloo:all_reduce"
    by_rank: dict[str, list[dict[str, Any]]] = {}
    for one in spans(trace):
        if one["name"] == name:
            by_rank.setdefault(whose[one["pid"]], []).append(one)
    assert len(by_rank) == 4
    bound_us = 2 * about["clocks"]["within_ns"] / 1000
    for meeting in zip(*by_rank.values(), strict=True):
        last_start = max(one["ts"] for one in meeting)
        assert last_start <= min(one["ts"] + one["dur"] for one in meeting) + bound_us


def test_processes_of_one_number_on_several_hosts(tmp_path: Path) -> None:
    """GIVEN pids that are the same, also one beyond Linux's THEN each is one of its own, and says which it was."""
    low, high = {"id": 42, "name": "python"}, {"id": (1 << 22) + 1, "name": "<b>odd"}
    device = {"id": 0, "name": "python", "labels": "GPU 0"}
    threads = [{"id": 7, "process": number, "name": "t"} for number in range(3)]
    rows = [Event("a", 0, 5, thread=0), Event("b", 1, 3, thread=1), Event("c", 2, 4, Kind.KERNEL, thread=2)]
    stored = [
        member(tmp_path, rank, rows, tracks=Tracks([dict(low), dict(device), dict(high)], threads)) for rank in range(3)
    ]
    whose = names(chrome(stored))
    assert len(whose) == 9
    assert whose[42] == "rank 0 node0: python"
    assert sorted(name for name in whose.values() if "python (pid 42)" in name) == [
        "rank 1 node0: python (pid 42)",
        "rank 2 node0: python (pid 42)",
    ]
    assert whose[(1 << 22) + 1] == "rank 0 node0: <b>odd"


ASYNC = [
    {"ph": "X", "name": "launch", "cat": "cpu_op", "pid": 5, "tid": 5, "ts": 10, "dur": 10},
    {"ph": "X", "name": "kernel", "cat": "kernel", "pid": 0, "tid": 7, "ts": 40, "dur": 10},
    {"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 7, "pid": 5, "tid": 5, "ts": 12},
    {"ph": "f", "bp": "e", "name": "ac2g", "cat": "ac2g", "id": 7, "pid": 0, "tid": 7, "ts": 42},
    {"ph": "b", "name": "fetch", "cat": "io", "id": "0x1", "pid": 5, "tid": 5, "ts": 20},
    {"ph": "e", "name": "fetch", "cat": "io", "id": "0x1", "pid": 5, "tid": 5, "ts": 30},
    {"ph": "b", "name": "wait", "cat": "io", "id2": {"global": "0x2"}, "pid": 5, "tid": 5, "ts": 21},
    {"ph": "e", "name": "wait", "cat": "io", "id2": {"global": "0x2"}, "pid": 5, "tid": 5, "ts": 31},
    {"ph": "b", "name": "own", "cat": "io", "id2": {"local": "0x3"}, "pid": 5, "tid": 5, "ts": 22},
    {"ph": "e", "name": "own", "cat": "io", "id2": {"local": "0x3"}, "pid": 5, "tid": 5, "ts": 32},
]


def shifted(records: list[dict[str, Any]], us: int) -> list[dict[str, Any]]:
    return [{**record, "ts": record["ts"] + us} for record in records]


def test_ids_that_several_traces_have(tmp_path: Path) -> None:
    """GIVEN flows and asynchronous events of equal ids WHEN merged THEN no id is that of two traces."""
    stored = [written(tmp_path, f"t{rank}", shifted(ASYNC, rank), rank=rank) for rank in range(2)]
    records = chrome(stored)["traceEvents"]
    flows = [one for one in records if one["ph"] in ("s", "f")]
    assert sorted(Counter(one["id"] for one in flows).values()) == [2, 2]
    ids = Counter(
        (one["ph"], one["name"], json.dumps(one.get("id") or one.get("id2"))) for one in records if one["ph"] in "be"
    )
    assert set(ids.values()) == {1, 2}
    assert [key for key, count in ids.items() if count == 2 and key[1] != "own"] == []  # local: of each process


@needs_trace_processor
@pytest.mark.parametrize("format_", ["chrome", "perfetto"])
def test_perfetto_reads_flows_and_pairs_of_one_trace_alone(tmp_path: Path, format_: str) -> None:
    """GIVEN ranks whose ids and numbers are equal WHEN Perfetto reads the file THEN nothing of one meets the other."""
    stored = [written(tmp_path, f"t{rank}", shifted(ASYNC, rank), rank=rank) for rank in range(2)]
    ends = """select a.ts, b.ts from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id
        order by a.ts"""
    pairs = "select name, ts, dur from slice where name in ('fetch', 'wait', 'own') order by name, ts"
    wrong = "select name, value from stats where severity = 'error' and value > 0"
    flows, found, errors = asked(exported(stored, format_)[1], ends, pairs, wrong)
    assert flows == [(10_000, 40_000), (11_000, 41_000)]
    assert found == [
        *[
            (name, ts, 10_000)
            for name, first in (("fetch", 20), ("own", 22), ("wait", 21))
            for ts in (first * 1000, (first + 1) * 1000)
        ]
    ]
    assert errors == []


@needs_trace_processor
def test_perfetto_reads_the_same_of_both_formats_and_the_archive_would_be_that(tmp_path: Path) -> None:
    """GIVEN clocks days apart WHEN Perfetto reads the files THEN slices of all ranks are where both formats have them.

    Its version here knows no manifest: each file of the archive is read, and moved as the manifest says.
    """
    stored = job(tmp_path, Plan(ranks=3, steps=20, apart_ns=2 * DAY_NS))
    one, said = asked(exported(stored, "perfetto")[1], SLICES, CLOCKS)
    (other,) = asked(exported(stored, "chrome")[1], SLICES)
    first = chrome(stored)["baseTimeNanoseconds"]
    assert one == [(*row[:3], row[3] + first, row[4]) for row in other]
    assert json.loads(said[0][0])["profd"]["traces"][2]["host"] == "node1"

    manifest, data = manifest_of(exported(stored, "perfetto-archive")[1])
    assert [entry["path"] for entry in manifest["files"]] == list(data)
    assert len({entry["machine"]["name"] for entry in manifest["files"]}) == 3
    moved: list[tuple[Any, ...]] = []
    for entry in manifest["files"]:
        clocks = entry.get("clocks")
        if clocks is None:
            assert manifest["trace_time"] == {"file": entry["path"], "clock": "BOOTTIME"}
        else:
            assert (clocks["clock"], clocks["sync_to"]) == ("BOOTTIME", manifest["trace_time"])
        (rows,) = asked(data[entry["path"]], SLICES)
        moved += [(*row[2:3], row[3] + (clocks["offset_ns"] if clocks else 0), row[4]) for row in rows]
    assert sorted(moved) == sorted(row[2:] for row in one)


def test_the_manifest_has_what_perfetto_allows(tmp_path: Path) -> None:
    """By its own page: attributes are strings or integers, offsets integers, paths those of files, names not empty."""
    stored = job(tmp_path, Plan(ranks=2, steps=20))
    archive = exported(stored, "perfetto-archive")[1]
    assert archive[512:].startswith(b'{"perfetto_manifest"')  # by which it is known
    manifest, data = manifest_of(archive)
    assert manifest["version"] == 1
    assert set(manifest) == {"version", "trace_time", "files", "attributes"}
    assert {type(value) for value in manifest["attributes"].values()} <= {str, int}
    assert json.loads(manifest["attributes"]["profd.clocks"])["capture"] == CAPTURE
    for entry in manifest["files"]:
        assert set(entry) <= {"path", "machine", "clocks"}
        assert entry["path"] in data
        assert not entry["path"].startswith(".")
        assert entry["machine"]["name"]
        assert type(entry.get("clocks", {"offset_ns": 0})["offset_ns"]) is int


def test_times_before_1970(tmp_path: Path) -> None:
    """Times are unsigned in Perfetto's files: all are moved by as much, and stay as far apart."""
    early = [member(tmp_path, rank, [Event("a", -5000 + rank, -4000)]) for rank in range(2)]
    manifest, data = manifest_of(exported(early, "perfetto-archive")[1])
    assert [entry["clocks"]["offset_ns"] for entry in manifest["files"] if "clocks" in entry] == [0]
    assert len(data) == 2
    trace = chrome(early)
    assert [round(one["ts"] * 1000) + trace["baseTimeNanoseconds"] for one in spans(trace)] == [-5000, -4999]


def test_clocks_that_nothing_is_known_of(tmp_path: Path) -> None:
    """GIVEN ranks without collectives THEN times stay as their hosts' clocks said, and the file says so."""
    stored = [member(tmp_path, rank, training(rank)) for rank in range(3)]
    about = chrome(stored)["profd"]
    assert {(row["joined_by"], row["moved_ns"], row["within_ns"]) for row in about["traces"]} == {
        ("wall clock", 0, None)
    }
    assert about["clocks"]["within_ns"] is None
    assert "no collective" in about["clocks"]["message"]


def test_why_clocks_were_not_compared(tmp_path: Path) -> None:
    """GIVEN too few collectives, and two traces of a rank THEN the file says why nothing is proved of which."""
    few = chrome(job(tmp_path, Plan(ranks=2, steps=5)))["profd"]
    assert {row["joined_by"] for row in few["traces"]} == {"wall clock"}
    assert few["remarks"] == [
        "Collectives of rank 1 could not be told to be those of the others: there are fewer than 8 collectives to "
        "compare."
    ]
    (tmp_path / "more").mkdir()
    stored = job(tmp_path / "more", Plan(ranks=2))
    again = member(tmp_path, 1, training(1), "again", host="node0")
    told = chrome([*stored, again])["profd"]
    assert told["remarks"] == ["Rank 1: it ran before or after those that are compared: the job was started again."]
    assert {row["trace"]: row["joined_by"] for row in told["traces"]}["again"] == "host"
    assert chrome([*stored, again], redact=["names"])["profd"]["remarks"] == []


def test_a_clock_that_lies(tmp_path: Path) -> None:
    """GIVEN a rank whose clock was set meanwhile THEN no bound is claimed, nothing is moved, and no event is lost."""
    paths = files(tmp_path, Plan(ranks=2, steps=40, sequence=True, device=True))
    said = json.loads(paths[1].read_text())
    for place, record in enumerate(said["traceEvents"]):
        if place > len(said["traceEvents"]) // 2:
            record["ts"] += 2 * DAY_NS / 1000
    paths[1].write_text(json.dumps(said))
    stored = [tmp_path / f"stored{rank}" for rank in range(2)]
    for rank, path in enumerate(paths):
        import_trace(path, stored[rank], trace=f"t{rank}", capture=CAPTURE, host=f"node{rank}", rank=rank)
    trace = chrome(stored)
    assert {row["joined_by"] for row in trace["profd"]["traces"]} == {"wall clock"}
    assert "no constant offsets fit" in trace["profd"]["clocks"]["message"]
    assert len(spans(trace)) == sum(one.events for one in Captured(stored).members)


def test_a_process_beside_the_ranks_goes_with_its_host(tmp_path: Path) -> None:
    """GIVEN a loader on a host of two ranks THEN it is moved as the first of them, and nothing is proved of it."""
    stored = job(tmp_path, Plan(ranks=4))
    loader = member(tmp_path, None, [Event("load", 1_100_000_000, 1_200_000_000)], "loader", host="node1")
    odd = member(tmp_path, None, [Event("odd", 1_100_000_000, 1_200_000_000)], "odd", host="node9")
    rows = {row["trace"]: row for row in chrome([*stored, loader, odd])["profd"]["traces"]}
    assert (rows["loader"]["joined_by"], rows["loader"]["within_ns"]) == ("host", None)
    assert rows["loader"]["moved_ns"] == rows["t2"]["moved_ns"] != 0
    assert (rows["odd"]["joined_by"], rows["odd"]["moved_ns"]) == ("wall clock", 0)


def test_the_first_rank_has_no_collectives(tmp_path: Path) -> None:
    """GIVEN a rank 0 of which nothing is known THEN the others are compared with each other, not with it."""
    stored = job(tmp_path, Plan(ranks=4))
    shutil.rmtree(stored[0])
    stored[0] = member(tmp_path, 0, training(0), "t0", host="node8")
    rows = chrome(stored)["profd"]["traces"]
    assert [row["joined_by"] for row in rows] == ["wall clock", "reference", "collectives", "collectives"]
    assert all(row["within_ns"] is not None for row in rows[1:])


def test_a_window_is_of_the_axis_and_steps_are_of_each_trace(tmp_path: Path) -> None:
    """GIVEN clocks hours apart WHEN a part is asked for THEN it is the same moment of all, or the step of each."""
    stored = job(tmp_path, Plan(ranks=3, steps=30, apart_ns=DAY_NS, cut={2: 10}))
    trace = chrome(stored, from_ns=150_000_000, to_ns=152_000_000)
    whose = names(trace)
    assert Counter(whose[one["pid"]][:6] for one in spans(trace) if one["name"].startswith("ProfilerStep")) == {
        "rank 0": 1,
        "rank 1": 1,
        "rank 2": 1,
    }
    steps = chrome(stored, first_step=5, last_step=6)
    assert {one["name"] for one in spans(steps) if one["name"].startswith("ProfilerStep")} == {
        "ProfilerStep#5",
        "ProfilerStep#6",
    }
    assert [row["rank"] for row in steps["profd"]["traces"]] == [0, 1]
    assert [(row["rank"], "no step 5..6" in row["why"]) for row in steps["profd"]["left_out"]] == [(2, True)]
    with pytest.raises(BadInput, match="no step 99"):
        exported(stored, "perfetto", first_step=99)
    with pytest.raises(BadInput, match="the capture lasts"):
        exported(stored, "perfetto", from_ns=DAY_NS)
    with pytest.raises(BadInput, match="is empty"):
        exported(stored, "chrome", from_ns=5, to_ns=5)
    longest = chrome(stored, min_duration_ns=9_000_000)
    assert 0 < len(spans(longest)) < len(spans(chrome(stored)))


def test_the_trace_whose_clock_is_the_axis_is_left_out(tmp_path: Path) -> None:
    """The others stay as far apart, in the archive, too."""
    stored = job(tmp_path, Plan(ranks=3, steps=30, cut={0: 12}))
    manifest, data = manifest_of(exported(stored, "perfetto-archive", first_step=3)[1])
    assert list(data) == ["000-rank1.pftrace", "001-rank2.pftrace"]
    assert manifest["trace_time"]["file"] == "000-rank1.pftrace"
    (offset,) = [entry["clocks"]["offset_ns"] for entry in manifest["files"] if "clocks" in entry]
    assert offset == pytest.approx(-40_000_000, abs=400_000)


def test_one_rank_and_an_empty_trace(tmp_path: Path) -> None:
    alone = chrome([member(tmp_path, 0, training(0))])
    assert [row["joined_by"] for row in alone["profd"]["traces"]] == ["reference"]
    assert len(spans(alone)) == 16
    empty = [member(tmp_path / "empty", rank, []) for rank in range(2)]
    for format_ in ("chrome", "perfetto", "perfetto-archive"):
        assert exported(empty, format_)[0] == 0
    assert chrome(empty)["traceEvents"] == []


def test_odd_names_and_ends_before_begins(tmp_path: Path) -> None:
    """GIVEN markup, controls and halves of letters in names, ends before begins THEN the files are whole."""
    rows = [Event("<script>alert(1)</script>", 50, 20), Event("a\ud800\x1b[2J", 5, 9), Event("open", 7, None)]
    stored = [member(tmp_path, rank, rows, host='"><img src=x>\x1b]0;x\x07') for rank in range(2)]
    trace = chrome(stored)
    assert len([one for one in trace["traceEvents"] if one["ph"] in "XB"]) == 6
    assert exported(stored, "perfetto")[0] == 6
    manifest, _ = manifest_of(exported(stored, "perfetto-archive")[1])
    assert manifest["files"][1]["machine"]["name"] == 'rank 1 "><img src=x>\x1b]0;x\x07'


def test_traces_of_one_rank_are_told_apart(tmp_path: Path) -> None:
    stored = [member(tmp_path, 0, training(0), name) for name in ("one", "two")]
    about = chrome(stored)["profd"]
    assert [row["title"] for row in about["traces"]] == ["rank 0 node0 one", "rank 0 node0 two"]
    assert about["shared_ranks"] == [0]


def test_redaction(tmp_path: Path) -> None:
    """Hosts go, names of ranges become hashes, which are the same in all ranks."""
    rows = [Event("secret", 0, 5, Kind.USER_ANNOTATION), Event("/home/ann/x.py(3): f", 1, 2, Kind.PYTHON_FUNCTION)]
    stored = [member(tmp_path, rank, rows, host=f"node{rank}") for rank in range(2)]
    for format_ in ("chrome", "perfetto", "perfetto-archive"):
        data = exported(stored, format_, redact=["paths", "names"])[1]
        assert not any(word in data for word in (b"secret", b"/home/ann", b"node0", b"node1"))
    trace = chrome(stored, redact=["names"])
    assert [row["host"] for row in trace["profd"]["traces"]] == ["host 1", "host 2"]
    assert len({one["name"] for one in spans(trace)}) == 2
    assert [one["name"] for one in spans(trace)][:2] == [one["name"] for one in spans(trace)][2:]


class Deleting(io.BytesIO):
    """A file that something is deleted behind, once its first bytes are there."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def write(self, data: Any, /) -> int:
        shutil.rmtree(self._directory, ignore_errors=True)
        return super().write(data)


@pytest.mark.parametrize("format_", ["chrome", "perfetto", "perfetto-archive"])
def test_a_trace_that_is_deleted_meanwhile(tmp_path: Path, format_: str) -> None:
    """GIVEN a trace that goes while another is written THEN the export ends with an error that names it."""
    stored = [member(tmp_path, rank, training(rank)) for rank in range(2)]
    arguments = QUESTIONS["export"].checked({"format": format_}, QUESTIONS["export"].scopes[-1])
    with pytest.raises(ProfdError, match="rank1"):
        export_of_capture(Captured(stored), Deleting(stored[1]), lambda what, share: None, **arguments)


def test_what_a_capture_is_not_written_as(tmp_path: Path) -> None:
    stored = [member(tmp_path, rank, training(rank)) for rank in range(2)]
    with pytest.raises(BadInput, match="of a capture there are chrome, perfetto, perfetto-archive"):
        exported(stored, "folded")
    with pytest.raises(BadInput, match="of a trace write perfetto"):
        exported(stored[0], "perfetto-archive")
    with pytest.raises(BadInput, match="--derived-flows does not work"):
        exported(stored, "perfetto", derived_flows=True)
    with pytest.raises(BadInput, match="a bundle of a capture is whole"):
        exported(stored, "bundle", first_step=1)
    assert exported(stored, "perfetto", gzip=True)[1].startswith(b"\x1f\x8b")


def test_a_trace_that_is_too_large_for_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies on the daemon's disk until it is whole: no more than a limit does."""
    monkeypatch.setattr("profd.export.perfetto_archive.ARCHIVE_TRACE_BYTES_MAX", 100)
    stored = [member(tmp_path, rank, training(rank)) for rank in range(2)]
    with pytest.raises(BadInput, match=r"rank0.* choose a part with --window"):
        exported(stored, "perfetto-archive")


def test_what_an_archive_keeps_aside_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon looks at names in its worker's directory to see how much it has written."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with _Spool() as spool:
        spool.write(bytes(1 << 20))
        assert [path.stat().st_size for path in tmp_path.iterdir()] == [1 << 20]
    assert not [*tmp_path.iterdir()]


def test_an_archive_on_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", "256k") as full:
        monkeypatch.setattr("tempfile.tempdir", str(full))
        stored = [member(tmp_path, rank, training(rank, steps=10_000)) for rank in range(2)]
        with pytest.raises(Exhausted, match="No space left"):
            exported(stored, "perfetto-archive")


def test_the_file_comes_back_as_a_trace(tmp_path: Path) -> None:
    """An import of the merged file has all events, by the axis, with processes of each rank."""
    stored = job(tmp_path, Plan(ranks=2, steps=12))
    path = tmp_path / "merged.json"
    path.write_bytes(exported(stored, "chrome")[1])
    done = import_trace(path, tmp_path / "again")
    assert done["events"] == sum(one.events for one in Captured(stored).members)
    assert done["warnings"] == []
    (again,) = Captured([tmp_path / "again"]).members
    assert again.start_ns is not None
    assert again.start_ns == pytest.approx(1_000_000_000, abs=400_000)
    assert os.path.getsize(path) > 0
