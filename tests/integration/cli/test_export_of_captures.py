"""`profctl export CAPTURE`: a real job over gloo, its ranks in one file, read back by Perfetto's trace processor."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.corpus.answers import gloo_jobs
from tests.integration.cli.conftest import on_both
from tests.support.trace_processor import asked, needs_trace_processor

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]

RANKS = 3
SLICES = "select count(*) from slice"
MEETINGS = """select p.name, s.ts, s.dur from slice s join thread_track t on s.track_id = t.id
    join thread using (utid) join process p using (upid) where s.name = 'gloo:all_reduce' order by p.name, s.ts"""
BETWEEN_RANKS = """select count(*) from flow f
    join thread_track a on a.id = (select track_id from slice where id = f.slice_out) join thread c on c.utid = a.utid
    join thread_track b on b.id = (select track_id from slice where id = f.slice_in) join thread d on d.utid = b.utid
    where c.upid != d.upid"""
WRONG = "select name, value from stats where severity = 'error' and value > 0"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What torch.profiler recorded of each rank."""
    pytest.importorskip("torch", reason="no torch here")
    return [str(path) for path in gloo_jobs.run(tmp_path_factory.mktemp("job"), "clean", RANKS)]


@pytest.fixture(scope="module")
def traces(profctl: Any, files: list[str]) -> list[dict[str, Any]]:
    done = profctl("import", "--together", *files, "--json")
    assert done.code == 0, done.err
    found: list[dict[str, Any]] = done.json
    return found


@pytest.fixture(scope="module")
def capture(traces: list[dict[str, Any]]) -> str:
    (found,) = {one["capture"] for one in traces}
    return str(found)


def exported(profctl: Any, capture: str, path: Path, *more: str) -> tuple[dict[str, Any], bytes]:
    """(what is said, the file)."""
    done = profctl("export", capture, "-o", str(path), "--json", *more)
    assert done.code == 0, done.err
    assert done.json["bytes"] == path.stat().st_size
    return done.json, path.read_bytes()


@needs_trace_processor
@on_both
@pytest.mark.parametrize("format_", ["chrome", "perfetto"])
def test_perfetto_sees_ranks_meet(
    profctl: Any, traces: list[dict[str, Any]], capture: str, tmp_path: Path, format_: str
) -> None:
    """GIVEN a real job WHEN its ranks are one file THEN all events are there, and collectives overlap as is proved."""
    told, data = exported(profctl, capture, tmp_path / "job", "-f", format_)
    within = told["clocks"]["within_ns"]
    assert 0 < within < 1_000_000_000
    assert [row["rank"] for row in told["traces"]] == [*range(RANKS)]
    ((count,),), rows, ((between,),), wrong = asked(data, SLICES, MEETINGS, BETWEEN_RANKS, WRONG)
    instants_too = sum(one["events"] for one in traces)
    assert 0.99 * instants_too <= count <= instants_too  # what is no slice: counters, marks
    assert (between, wrong) == (0, [])
    by_rank: dict[str, list[tuple[int, int]]] = {}
    for name, start, lasted in rows:
        by_rank.setdefault(name.partition(":")[0], []).append((start, start + lasted))
    assert len(by_rank) == RANKS
    (length,) = {len(some) for some in by_rank.values()}
    assert length > 100
    for meeting in zip(*by_rank.values(), strict=True):  # all began to record after a barrier
        assert max(start for start, _ in meeting) <= min(end for _, end in meeting) + 2 * within


def test_the_file_says_what_the_terminal_and_ranks_say(profctl: Any, capture: str, tmp_path: Path) -> None:
    told, data = exported(profctl, capture, tmp_path / "job.json", "-f", "chrome")
    assert json.loads(data)["profd"] == {key: told[key] for key in told if key not in ("file", "format", "bytes")}
    assert told["clocks"]["message"] == profctl("ranks", capture, "--json").json["clocks"]["message"]
    done = profctl("export", capture, "-f", "perfetto-archive", "-o", str(tmp_path / "job.tar"))
    assert (done.code, done.out) == (0, "")
    assert "at most (proved)" in done.err
    assert "rank 2 on" in done.err
    with tarfile.open(tmp_path / "job.tar") as tar:
        assert tar.getnames() == ["perfetto_manifest.json", *(f"{rank:03}-rank{rank}.pftrace" for rank in range(RANKS))]
    packed, _ = exported(profctl, capture, tmp_path / "job.tar.gz", "-f", "perfetto-archive")
    assert packed["traces"] == told["traces"]


def test_parts_of_a_capture_and_what_is_refused(
    profctl: Any, traces: list[dict[str, Any]], capture: str, tmp_path: Path
) -> None:
    _, whole = exported(profctl, capture, tmp_path / "whole.json")
    told, step = exported(profctl, capture, tmp_path / "step.json", "--step", "5")
    assert 0 < len(step) < len(whole) / 20
    assert told["left_out"] == []
    piped = profctl("export", capture, "--step", "5")
    assert piped.out.encode() == step
    assert "(proved)" in piped.err
    for options, words in (
        (("-f", "folded"), "for other formats name one of its traces"),
        (("-f", "bundle"), "for other formats name one of its traces"),
        (("--step", "5000"), "no step 5000"),
        (("--window", "5000s.."), "the capture lasts"),
        (("-f", "perfetto", "--derived-flows"), "--derived-flows does not work"),
    ):
        refused = profctl("export", capture, "-o", str(tmp_path / "no"), *options)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    alone = profctl("export", traces[0]["trace"], "-f", "perfetto-archive", "-o", str(tmp_path / "no"))
    assert (alone.code, "of a trace write perfetto" in alone.err) == (2, True)
    assert profctl("export", capture, "--json").code == 2
    assert profctl("export", "c0000000000000"[:13], "-o", str(tmp_path / "no")).code == 3
    assert not (tmp_path / "no").exists()


def test_the_file_of_a_trace_says_less(profctl: Any, traces: list[dict[str, Any]], tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    told, data = exported(profctl, traces[0]["trace"], path)
    assert told == {"file": str(path), "format": "chrome", "bytes": len(data)}
