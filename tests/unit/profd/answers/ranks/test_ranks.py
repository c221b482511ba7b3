"""The question `ranks`, on files of simulated jobs whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profd.query import whole
from profd.segments.meta import read_meta

from tests.support.importing import import_trace
from tests.support.many_ranks import CAPTURE, ask
from tests.support.simulated_job import APART_NS, STEP_NS, TRANSFER_NS, Plan, files


def stored(folder: Path, plan: Plan, *without: int) -> list[Path]:
    """The traces of a job's ranks, but for those that nobody recorded."""
    found = []
    for rank, path in enumerate(files(folder, plan)):
        if rank not in without:
            found.append(folder / f"stored{rank}")
            import_trace(path, found[-1], trace=f"t{rank}", capture=CAPTURE, host="node0")
    return found


def told(folder: Path, plan: Plan, *without: int) -> dict[str, Any]:
    answer: dict[str, Any] = ask("ranks", stored(folder, plan, *without))
    return answer


@pytest.mark.parametrize("device", [False, True], ids=["gloo", "nccl"])
def test_a_rank_that_calls_more_than_the_others(tmp_path: Path, device: bool) -> None:
    """GIVEN rank 1, 1 ms late in each step WHEN asked THEN it is named, with what it calls; the others wait for it."""
    answer = told(tmp_path, Plan(late={1: 1_000_000}, device=device))
    (late,) = answer["stragglers"]
    assert (late["rank"], late["always"], late["cause"]["name"]) == (1, True, "aten::sort")
    assert late["excess_ns"] == pytest.approx(1_000_000, rel=0.2)
    assert "4 times" not in late["sentence"]
    assert "the others 0" in late["sentence"]
    assert answer["status"] == "found"
    waiting = [row["waiting_ns"] for row in answer["ranks"]]
    assert waiting[1] < 200_000 < 800_000 < min(waiting[0], waiting[2])


def test_the_parts_of_a_step_add_up_to_it(tmp_path: Path) -> None:
    for row in told(tmp_path, Plan(late={1: 1_000_000}))["ranks"]:
        parts = sum(row[f"{name}_ns"] for name in ("compute", "exposed", "copying", "idle"))
        assert parts == pytest.approx(row["step_ns"], abs=4)
        assert row["exposed_ns"] - row["waiting_ns"] == pytest.approx(TRANSFER_NS, rel=0.2)
        assert row["compute_ns"] >= 0.9 * STEP_NS


def test_a_rank_that_is_late_in_a_rhythm(tmp_path: Path) -> None:
    (late,) = told(tmp_path, Plan(steps=120, late={2: 3_000_000}, every=10))["stragglers"]
    assert (late["rank"], late["always"], late["every"]) == (2, False, 10)
    assert "11 of 118 steps (every 10th): " in late["sentence"]
    assert late["steps"] == list(range(9, 110, 10))  # the last step may end in the middle, and is not judged
    assert late["cause"]["name"] == "aten::sort"


def test_equal_ranks_are_an_answer(tmp_path: Path) -> None:
    answer = told(tmp_path, Plan())
    assert (answer["status"], answer["stragglers"]) == ("nothing found", [])
    assert "none" in answer["message"]
    assert answer["steps"] == {"n": 29, "first": 1, "last": 29, "aligned_by": "collectives"}
    rows = answer["heat"]["rows"]
    assert [len(row["late"]) for row in rows] == [29] * 3
    assert all(abs(late) < 0.1 for row in rows for late in row["late"] if late is not None)


def test_how_far_clocks_are_apart(tmp_path: Path) -> None:
    answer = told(tmp_path, Plan())
    for rank, row in enumerate(answer["ranks"]):
        assert row["clock_ahead_ns"] == pytest.approx(rank * APART_NS, abs=row["clock_within_ns"] + 1)
    assert 0 < answer["clocks"]["within_ns"] < 1_000_000
    assert "proved" in answer["clocks"]["message"]


def test_steps_are_told_apart_by_collectives_where_windows_begin_elsewhere(tmp_path: Path) -> None:
    """GIVEN a rank whose first six steps are missing WHEN compared THEN its step 7 is that of the others."""
    answer = told(tmp_path, Plan(steps=60, late={0: 1_000_000}, cut={1: 6}))
    assert answer["steps"]["first"] == 7
    assert [one["rank"] for one in answer["stragglers"]] == [0]


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    answer = told(tmp_path, Plan(ranks=4, world=8), 1)
    assert answer["missing_ranks"] == [[1, 1], [4, 7]]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (Plan(ranks=1), "one rank has no others"),
        (Plan(steps=10), "too few to tell"),
        (Plan(steps=5), "fewer than 8 collectives"),
        (Plan(steps=1), "record three steps or more"),
    ],
    ids=["one", "few steps", "few collectives", "no steps"],
)
def test_too_little_is_an_answer(tmp_path: Path, plan: Plan, why: str) -> None:
    answer = told(tmp_path, plan)
    assert (answer["status"], answer["stragglers"]) == ("not enough data", [])
    assert why in answer["message"]


def test_ranks_of_differing_sources_and_jobs(tmp_path: Path) -> None:
    both = stored(tmp_path, Plan(ranks=2))
    (tmp_path / "other").mkdir()
    file = files(tmp_path / "other", Plan(ranks=3, world=16))[2]
    import_trace(file, tmp_path / "third", trace="t2", capture=CAPTURE, host="node1", source="kineto")
    remarks = " ".join(ask("ranks", [*both, tmp_path / "third"])["remarks"])
    assert "different sources (import, kineto)" in remarks
    assert "jobs of 2 and 16 ranks" in remarks


def test_a_rank_of_another_job_is_refused_and_the_others_answer(tmp_path: Path) -> None:
    """GIVEN a trace whose collectives are others' WHEN matched THEN no clock fits it, and it is said which one."""
    both = stored(tmp_path, Plan(ranks=2, late={1: 1_000_000}))
    (tmp_path / "other").mkdir()
    file = files(tmp_path / "other", Plan(ranks=3, seed=7))[2]
    import_trace(file, tmp_path / "third", trace="t2", capture=CAPTURE, host="node1")
    answer = ask("ranks", [*both, tmp_path / "third"])
    assert any("rank 2" in one and "no clock fits" in one for one in answer["remarks"])
    assert [one["rank"] for one in answer["stragglers"]] == [1]
    assert answer["ranks"][2]["matched"] == 0


def test_the_longest_trace_is_of_another_job(tmp_path: Path) -> None:
    """GIVEN an alien with most collectives WHEN the others do not match it THEN they are matched with one another."""
    mine = stored(tmp_path, Plan(ranks=3, late={1: 1_000_000}))
    (tmp_path / "other").mkdir()
    file = files(tmp_path / "other", Plan(ranks=4, steps=40, seed=7))[3]
    import_trace(file, tmp_path / "alien", trace="t3", capture=CAPTURE, host="node1")
    answer = ask("ranks", [*mine, tmp_path / "alien"])
    assert [one["rank"] for one in answer["stragglers"]] == [1]
    assert [row["matched"] for row in answer["ranks"]] == [30, 30, 30, 0]


def test_a_trace_that_ends_early_does_not_shorten_the_others(tmp_path: Path) -> None:
    answer = told(tmp_path, Plan(ranks=3, steps=40, late={1: 1_000_000}, cut={2: 28}))
    assert [one["rank"] for one in answer["stragglers"]] == [1]
    assert any("rank 2" in one and "12 of 40 collectives in common" in one for one in answer["remarks"])


def test_a_trace_that_is_too_large_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "QUERY_ROWS_MAX", 150)
    answer = told(tmp_path, Plan(ranks=3, late={1: 1_000_000}))
    (one,) = answer["left_out"]
    assert (one["rank"], "works up to 150" in one["why"]) == (1, True)
    assert [row["rank"] for row in answer["ranks"]] == [0, 2]


def test_steps_alone_are_no_reason_to_blame_a_rank(tmp_path: Path) -> None:
    """GIVEN ranks without collectives WHEN asked THEN their steps stand in the table, and none is named."""
    for file in files(tmp_path, Plan(ranks=2, late={1: 3_000_000})):
        text = json.loads(file.read_text())
        text["traceEvents"] = [one for one in text["traceEvents"] if "gloo" not in one["name"]]
        file.write_text(json.dumps(text))
        import_trace(file, tmp_path / file.stem, trace=file.stem, capture=CAPTURE)
    answer = ask("ranks", [tmp_path / "rank0", tmp_path / "rank1"])
    assert (answer["status"], answer["heat"]["of"], answer["steps"]["aligned_by"]) == (
        "not enough data",
        "step",
        "number",
    )
    assert all(row["waiting_ns"] is None and row["steps"] == 29 for row in answer["ranks"])
    assert "have no collectives: rank 0, rank 1" in " ".join(answer["remarks"])


def test_files_say_their_rank(tmp_path: Path) -> None:
    (_, second) = stored(tmp_path, Plan(ranks=2, steps=1))
    assert read_meta(second).rank == 1


@pytest.mark.parametrize("info", [{"rank": -1}, {"rank": "3"}, {"rank": 1 << 40}, {"rank": True}, [], "x"], ids=repr)
def test_ranks_that_no_job_has_are_none(tmp_path: Path, info: Any) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"distributedInfo": info, "traceEvents": []}))
    import_trace(path, tmp_path / "t")
    assert read_meta(tmp_path / "t").rank is None


def test_how_each_trace_calls_its_steps(tmp_path: Path) -> None:
    """GIVEN a rank that numbers its steps otherwise WHEN asked THEN the map says by how much."""
    paths = files(tmp_path, Plan(ranks=2))
    text = paths[1].read_text()
    for step in reversed(range(30)):
        text = text.replace(f'ProfilerStep#{step}"', f'ProfilerStep#{step + 100}"')
    paths[1].write_text(text)
    for rank, path in enumerate(paths):
        import_trace(path, tmp_path / f"stored{rank}", trace=f"t{rank}", capture=CAPTURE, host="node0")
    rows = ask("ranks", [tmp_path / f"stored{rank}" for rank in range(2)])["heat"]["rows"]
    assert [row["counts_ahead"] for row in rows] == [0, 100]
