"""`profctl import` of what is not Kineto's: through the daemon, so in a worker without privileges, and without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import EITHER, on_both
from tests.support.nvprof import training_step
from tests.support.simulated_job import Plan, files

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cli")]

STREAM = [
    {"ph": phase, "name": name, "ts": ts, "pid": 1, "tid": tid}
    for phase, name, ts, tid in [
        ("B", "mul", 1, 1),
        ("B", "mul", 2, 1),
        ("E", "mul", 3, 1),
        ("E", "mul", 4, 1),
        ("B", "wait", 5, 1),
        ("E", "wait", 6, 2),
    ]
]


@pytest.fixture(params=EITHER)
def profctl(request: pytest.FixtureRequest, host: Any, tmp_path: Path) -> Any:
    """profctl against the daemon, and against a store of its own."""
    (tmp_path / "state").mkdir()
    before = () if request.param == "daemon" else ("--store", str(tmp_path / "state"))
    return lambda *arguments: host.profctl(*before, *arguments)


@on_both
def test_a_database_of_nvprof(profctl: Any, tmp_path: Path) -> None:
    done = profctl("import", str(training_step(tmp_path / "train.nvvp")), "--json")
    assert done.code == 0, done.err
    assert (done.json["events"], done.json["lost"]) == (10, [])
    rows = {row["name"]: row for row in profctl("top", done.json["trace"], "--json").json}
    assert (rows["aten::mm"]["count"], rows["aten::mm"]["device_time_total_ns"]) == (1, 600)
    lines = [json.loads(line) for line in profctl("tree", done.json["trace"], "--json").out.splitlines()]
    names = {line["row"]: line["name"] for line in lines}
    kernel = next(line for line in lines if line["name"] == "_Z4gemmPf")
    assert names[kernel["parent"]] == "cudaLaunchKernel"


def test_a_database_that_is_cut_off(profctl: Any, tmp_path: Path) -> None:
    path = training_step(tmp_path / "train.nvvp")
    path.write_bytes(path.read_bytes()[:1000])
    done = profctl("import", str(path))
    assert done.code == 1
    assert "SQLite" in done.err


def test_a_stream_as_it_is_and_in_the_dialect(profctl: Any, tmp_path: Path) -> None:
    path = tmp_path / "legacy.json"
    path.write_text(json.dumps(STREAM))
    plain = profctl("import", str(path), "--json").json
    legacy = profctl("import", str(path), "--dialect", "torch-legacy", "--json").json
    assert plain["events"] == 3
    assert (legacy["events"], legacy["lost"]) == (2, [])
    rows = {row["name"]: row["count"] for row in profctl("top", legacy["trace"], "--json").json}
    assert rows == {"mul": 1, "wait": 1}


def test_a_dialect_that_there_is_not(host: Any, tmp_path: Path) -> None:
    path = tmp_path / "legacy.json"
    path.write_text("[]")
    assert host.profctl("import", str(path), "--dialect", "klingon").code == 2


@on_both
def test_files_of_all_ranks_are_one_capture_to_ask(profctl: Any, tmp_path: Path) -> None:
    """GIVEN files of two ranks, one late WHEN asked THEN it is named; the capture they became answers again."""
    ranks = [str(path) for path in files(tmp_path, Plan(ranks=2, late={1: 1_000_000}))]
    done = profctl("ranks", *ranks)
    assert done.code == 0, done.err
    assert "Rank 1 comes" in done.out
    assert "aten::sort" in done.out
    assert "proved" in done.out
    assert "░" in done.out
    (capture,) = {word.strip(":") for word in done.err.split() if len(word.strip(":")) == 13 and word.startswith("c")}
    (row,) = profctl("comm", capture, "--json").json["collectives"]
    assert (row["op"], row["count"], row["last"][0]["rank"]) == ("all_reduce", 30, 1)
    for question in ("explain", "critical"):  # of the latest trace, which is that of one rank
        assert f"is that of rank 1 alone: `profctl {question} {capture}` asks" in profctl(question).err
        assert "alone" not in profctl(question, capture).err


def test_files_that_become_a_capture_and_one_trace_of_it(host: Any, tmp_path: Path) -> None:
    ranks = [str(path) for path in files(tmp_path, Plan(ranks=2))]
    together = host.profctl("import", "--together", *ranks, "--json").json
    (capture,) = {one["capture"] for one in together}
    assert host.profctl("comm", capture).out.splitlines()[1].split()[:3] == ["all_reduce", "2", "30"]
    alone = host.profctl("ranks", together[0]["trace"])
    assert (alone.code, "not enough data" in alone.out) == (0, True)
    refused = host.profctl("ranks", ranks[0], capture)
    assert (refused.code, "is no file" in refused.err) == (2, True)
